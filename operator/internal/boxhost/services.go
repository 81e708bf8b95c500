package boxhost

// ganesha is the configuration of nfs-ganesha: NFSv4 alone, which needs no rpcbind, at the address of the interface. Users of servers are
// whoever they say that they are (AUTH_SYS), and root is nobody.
func (w *writer) ganesha() string {
	l := &lines{}
	l.add(header)
	l.add("NFS_CORE_PARAM {\n\tProtocols = 4;\n\tNFS_Port = %d;\n\tBind_addr = %s;\n\tEnable_NLM = false;\n\tEnable_RQUOTA = false;\n}",
		PortNFS, w.Address.Addr())
	l.add("NFSv4 {\n\tRecoveryBackend = fs;\n\tRecoveryRoot = %q;\n\tLease_Lifetime = 20;\n\tGrace_Period = 25;\n}",
		w.State+"/"+NFSRecovery)
	l.add("EXPORT_DEFAULTS {\n\tAccess_Type = None;\n\tProtocols = 4;\n\tTransports = TCP;\n\tSecType = sys;\n\tSquash = Root_Squash;\n}")
	for i, export := range w.Exports {
		access := "RW"
		if export.ReadOnly {
			access = "RO"
		}
		l.add("EXPORT {\n\tExport_Id = %d;\n\tPath = %q;\n\tPseudo = %q;\n\tFSAL {\n\t\tName = VFS;\n\t}",
			i+1, w.State+"/"+Exports+export.Name, export.Name)
		l.add("\tCLIENT {\n\t\tClients = %s;\n\t\tAccess_Type = %s;\n\t}\n}", w.network, access)
	}
	l.add("LOG {\n\tDefault_Log_Level = WARN;\n}")
	return l.String()
}

// sshd is the configuration of OpenSSH: one user, with keys alone, who forwards nothing.
func (w *writer) sshd() string {
	l := &lines{}
	l.add(header)
	l.add("Port %d\nAddressFamily inet\nListenAddress %s\nHostKey %s/%s\nPidFile none", PortSSH, w.Address.Addr(), w.State, HostKey)
	l.add("AllowUsers %s\nAuthenticationMethods publickey\nPubkeyAuthentication yes\nAuthorizedKeysFile %s/%s",
		w.User, w.Run, AuthorizedKeys)
	l.add("PasswordAuthentication no\nKbdInteractiveAuthentication no\nPermitEmptyPasswords no\nPermitRootLogin no\nUsePAM no")
	l.add("DisableForwarding yes\nPermitTunnel no\nPermitUserEnvironment no\nPermitUserRC no\nUseDNS no")
	l.add("LoginGraceTime 20\nMaxAuthTries 3\nMaxSessions 4\nMaxStartups 10:30:40\nClientAliveInterval 30\nClientAliveCountMax 4")
	return l.String()
}
