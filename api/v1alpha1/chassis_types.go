package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Chassis is a box of servers: its slots, its management controllers, its networks and its power. The operator makes a Server for each slot
// that has one.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=chassis,singular=chassis,scope=Cluster,categories=rcbox
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Model",type=string,JSONPath=`.spec.model`,description="The line-up of hardware"
// +kubebuilder:printcolumn:name="Servers",type=integer,JSONPath=`.status.servers.total`,description="Servers in it"
// +kubebuilder:printcolumn:name="On",type=integer,JSONPath=`.status.servers.on`,description="Servers that are known to be on"
// +kubebuilder:printcolumn:name="Silent",type=integer,JSONPath=`.status.servers.silent`,description="Servers whose BMC does not answer"
// +kubebuilder:printcolumn:name="Master",type=string,JSONPath=`.status.manager.master`,description="The chassis manager that is in charge"
// +kubebuilder:printcolumn:name="Available",type=string,JSONPath=`.status.conditions[?(@.type=="Available")].status`,description="Whether all of its servers can be seen and switched"
// +kubebuilder:printcolumn:name="Watts",type=integer,priority=1,JSONPath=`.status.watts`,description="Power that it draws"
// +kubebuilder:printcolumn:name="Budget",type=integer,priority=1,JSONPath=`.status.budgetWatts`,description="Power that it may draw"
// +kubebuilder:printcolumn:name="Degraded",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Degraded")].status`,description="Whether something that is there twice has failed"
// +kubebuilder:printcolumn:name="Rack",type=string,priority=1,JSONPath=`.spec.position.rack`,description="Where it is"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 32 && self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",message="metadata.name must start with a letter and have at most 32 lower case letters, digits and '-': names of its management controllers, such as mercury1cmm, are made from it"
type Chassis struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// The hardware of the chassis, and the state that is asked of it.
	Spec ChassisSpec `json:"spec"`
	// The state that the operator saw last, and wrote.
	//
	// +optional
	Status ChassisStatus `json:"status,omitempty"`
}

// ChassisList is a list of Chassis.
//
// +kubebuilder:object:root=true
type ChassisList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Chassis `json:"items"`
}

// ChassisSpec describes a chassis.
//
// +kubebuilder:validation:XValidation:rule="self.namePrefix == oldSelf.namePrefix && self.firstServer == oldSelf.firstServer",message="namePrefix and firstServer cannot be changed: Servers, nodes and addresses are named by them; make another Chassis"
type ChassisSpec struct {
	// The line-up of hardware, by the name of its model: MicroModularServer, XeonHighDensity, Generic or EmulatedRack.
	//
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z][A-Za-z0-9]{0,62}$')",message="model must be the name of a model, such as MicroModularServer"
	// +kubebuilder:validation:MaxLength=63
	Model string `json:"model"`

	// Figures of this chassis in place of those of its model, such as the names of the sensors of its chassis manager. They must fit the
	// model as its own do; condition Accepted says what does not.
	//
	// +optional
	ModelOverrides *ModelOverrides `json:"modelOverrides,omitempty"`

	// The letters before the number in the names of its Servers.
	//
	// +optional
	// +kubebuilder:default=atom
	// +kubebuilder:validation:MaxLength=24
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z]([-a-z]*[a-z])?$')",message="namePrefix must consist of lower case letters and '-', such as atom: a number follows"
	NamePrefix string `json:"namePrefix,omitempty"`

	// The number of the server in the first of its slots; those in the other slots follow. No two Chassis with one prefix may have the same
	// number.
	//
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=9999
	FirstServer int32 `json:"firstServer"`

	// The slots that have a server, as a list such as 1-44 or 1-20,23-46.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="self.matches('^[0-9]+([-+][0-9]+)?(,[0-9]+([-+][0-9]+)?)*$')",message="slots must be a list of numbers such as 1-44 or 1-20,23+4, without spaces"
	Slots string `json:"slots"`

	// The slots that have a storage board, as such a list. All others are empty.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+([-+][0-9]+)?(,[0-9]+([-+][0-9]+)?)*)?$')",message="storageSlots must be a list of numbers such as 45,46, without spaces"
	StorageSlots string `json:"storageSlots,omitempty"`

	// Where it is.
	//
	// +optional
	Position ChassisPosition `json:"position,omitzero"`

	// How chassis are connected with each other without an external switch.
	//
	// +optional
	Chain *ChassisChain `json:"chain,omitempty"`

	// The controllers that watch and switch it.
	Management ChassisManagement `json:"management"`

	// The networks of its servers' NICs.
	//
	// +optional
	// +listType=map
	// +listMapKey=nic
	// +kubebuilder:validation:MaxItems=8
	Networks []ChassisNetwork `json:"networks,omitempty"`

	// How the ports of switches are switched off that NICs of isolated servers are plugged into. Default: they stay on.
	//
	// +optional
	// +listType=map
	// +listMapKey=nic
	// +kubebuilder:validation:MaxItems=8
	SwitchPorts []SwitchPorts `json:"switchPorts,omitempty"`

	// How much power its servers may draw, and how many start together.
	//
	// +optional
	// +kubebuilder:default={}
	Power ChassisPower `json:"power,omitempty"`

	// Whose members may have a server switched off.
	//
	// +optional
	// +kubebuilder:default={}
	Fencing ChassisFencing `json:"fencing,omitempty"`

	// How its servers come to a system, and to volumes for Stores.
	//
	// +optional
	// +kubebuilder:default={}
	Boot ChassisBoot `json:"boot,omitempty"`

	// Which of its servers are isolated without anybody's order.
	//
	// +optional
	// +kubebuilder:default={}
	Isolation ChassisIsolation `json:"isolation,omitempty"`
}

// InstallPolicy is which servers are installed without anybody's order.
//
// +kubebuilder:validation:Enum=Never;New
type InstallPolicy string

const (
	// InstallNever means that servers boot from the network by order only.
	InstallNever InstallPolicy = "Never"
	// InstallNew means that each server that never was a node boots from the network once.
	InstallNew InstallPolicy = "New"
)

// ChassisBoot says how servers come to a system.
type ChassisBoot struct {
	// Which servers are installed without anybody's order. New: each server that is off and never was a node boots from the network, gets
	// the boot image of the box hosts on its disk, and becomes a node; condition Installed says how far that is. At most power.startsAtOnce
	// servers are installed together, each is tried three times, and an order of a user counts more. Never: only by order (kubectl rcbox
	// pxeboot).
	//
	// +optional
	// +kubebuilder:default=Never
	Install InstallPolicy `json:"install,omitempty"`

	// The version of the boot image that box hosts must serve: version in its manifest.json. Condition ServicesReady names box hosts that
	// serve another one, and no server is installed meanwhile. Default: each version is fine.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^([A-Za-z0-9][A-Za-z0-9._+-]*)?$')",message="boot.image must be the version of a boot image, as in its manifest.json: letters, digits, '.', '_', '+' and '-'"
	Image string `json:"image,omitempty"`

	// The StorageClass of the volumes that are made of the backup partitions (sda2) of its nodes, one PersistentVolume for each node. The
	// class must be there, without a provisioner, and with volumeBindingMode WaitForFirstConsumer. Default: no volumes are made.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^([a-z0-9]([-a-z0-9.]*[a-z0-9])?)?$')",message="boot.storageClassName must be the name of a StorageClass"
	StorageClassName string `json:"storageClassName,omitempty"`
}

// ChassisPosition says where a chassis is.
type ChassisPosition struct {
	// The rack.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Rack string `json:"rack,omitempty"`
	// The lowest of its units in the rack.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=60
	Unit int32 `json:"unit,omitempty"`
}

// ChainRole is the place of a chassis among those that are connected with each other.
//
// +kubebuilder:validation:Enum=Root;Leaf
type ChainRole string

const (
	// ChainRoot is the chassis that the others are connected to.
	ChainRoot ChainRole = "Root"
	// ChainLeaf is one of the others.
	ChainLeaf ChainRole = "Leaf"
)

// UplinkMode is what a QSFP port is divided into.
//
// +kubebuilder:validation:Enum="1x40G";"4x10G"
type UplinkMode string

// Modes of QSFP ports.
const (
	Uplink1x40G UplinkMode = "1x40G"
	Uplink4x10G UplinkMode = "4x10G"
)

// ChassisChain says how chassis are connected with each other.
type ChassisChain struct {
	// Root or Leaf.
	Role ChainRole `json:"role"`
	// Its QSFP ports that are in use.
	//
	// +optional
	// +listType=map
	// +listMapKey=qsfp
	// +kubebuilder:validation:MaxItems=8
	Uplinks []ChassisUplink `json:"uplinks,omitempty"`
}

// ChassisUplink is a QSFP port.
type ChassisUplink struct {
	// The number of the port.
	//
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=8
	QSFP int32 `json:"qsfp"`
	// The number of links that it is divided into, and their speed.
	//
	// +optional
	// +kubebuilder:default="1x40G"
	Mode UplinkMode `json:"mode,omitempty"`
	// The Chassis at the other end.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=32
	Peer string `json:"peer,omitempty"`
}

// ManagementProtocol is how BMCs are spoken to.
//
// +kubebuilder:validation:Enum=IPMI;Redfish
type ManagementProtocol string

const (
	// ManagementIPMI is IPMI 2.0 over LAN.
	ManagementIPMI ManagementProtocol = "IPMI"
	// ManagementRedfish is Redfish over HTTPS.
	ManagementRedfish ManagementProtocol = "Redfish"
)

// ChassisManagement names the controllers of a chassis. Addresses are lists such as 192.168.5.1+44; the n-th address is that of the n-th
// slot, and addresses that end in .0 or .255 are left out.
//
// +kubebuilder:validation:XValidation:rule="!has(self.cipherSuite) || !has(self.protocol) || self.protocol == 'IPMI'",message="management.cipherSuite is for protocol: IPMI"
// +kubebuilder:validation:XValidation:rule="!has(self.insecureSkipVerify) || (has(self.protocol) && self.protocol == 'Redfish')",message="management.insecureSkipVerify is for protocol: Redfish"
type ChassisManagement struct {
	// How they are spoken to; left empty, as the model says.
	//
	// +optional
	Protocol ManagementProtocol `json:"protocol,omitempty"`

	// The Secret of type rcbox.dev/bmc with the keys username and password, in the operator's namespace. A Secret of another type is not
	// used, and nothing else is ever read from there. A BMC that takes only what the key previousPassword says, if there is one, is given
	// the password. The key ca.crt, if there is one, has who may vouch for certificates of Redfish, as PEM; without it, those do whom the
	// controller's image trusts.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	CredentialsSecret string `json:"credentialsSecret"`

	// The cipher suite of IPMI: 17 (SHA-256), or 3 (SHA-1) for old BMCs. Weaker ones are refused. Default: 17.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="self == 3 || self == 17",message="management.cipherSuite must be 17 or 3: all others leave passwords or commands open to everybody in the network"
	CipherSuite int32 `json:"cipherSuite,omitempty"`

	// The port of all BMCs; default: 623 for IPMI, 443 for Redfish.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port,omitempty"`

	// The VLAN of the management network. BMCs of servers that say that they are in another one are moved there; once all have moved, the
	// switch boards come next, by hand: kubectl rcbox vlan. 1: their frames have no tag. Default: BMCs are left where they are.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=4094
	VLAN int32 `json:"vlan,omitempty"`

	// Whether a Redfish BMC's certificate is not checked. Whoever is in the management network can then read the password.
	//
	// +optional
	InsecureSkipVerify bool `json:"insecureSkipVerify,omitempty"`

	// The addresses of the servers' own BMCs, in the order of spec.slots.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:XValidation:rule="self.matches('^[0-9][-+.,0-9]*$')",message="management.mmc must be a list of addresses such as 192.168.5.1+44, without spaces"
	MMC string `json:"mmc"`

	// The addresses of the chassis managers, none, one or two. Which one is in charge is found out.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=2
	// +kubebuilder:validation:items:MaxLength=45
	// +kubebuilder:validation:XValidation:rule="self.all(a, isIP(a))",message="management.cmm must be addresses, such as 192.168.5.201"
	// +kubebuilder:validation:XValidation:rule="self.all(a, !isIP(a) || ip.isCanonical(a))",message="management.cmm must be addresses in their shortest form, such as 2001:db8::1 in place of 2001:DB8:0::1"
	// +kubebuilder:validation:XValidation:rule="self.all(a, !isIP(a) || ip(a).isGlobalUnicast() || ip(a).isLoopback())",message="management.cmm names an address that no BMC can have: write one that is neither unspecified, nor multicast, broadcast or link-local"
	CMM []string `json:"cmm,omitempty"`

	// The addresses of the control ports of its switch boards, at most two.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=2
	// +kubebuilder:validation:items:MaxLength=45
	// +kubebuilder:validation:XValidation:rule="self.all(a, isIP(a))",message="management.ons must be addresses, such as 192.168.5.203"
	// +kubebuilder:validation:XValidation:rule="self.all(a, !isIP(a) || ip.isCanonical(a))",message="management.ons must be addresses in their shortest form, such as 2001:db8::1 in place of 2001:DB8:0::1"
	// +kubebuilder:validation:XValidation:rule="self.all(a, !isIP(a) || ip(a).isGlobalUnicast() || ip(a).isLoopback())",message="management.ons names an address that no BMC can have: write one that is neither unspecified, nor multicast, broadcast or link-local"
	ONS []string `json:"ons,omitempty"`
}

// ChassisNetwork is the network of one NIC of each server.
//
// +kubebuilder:validation:XValidation:rule="!has(self.range) || has(self.cidr)",message="networks[].range needs networks[].cidr"
type ChassisNetwork struct {
	// The number of the NIC, from 1.
	//
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=8
	NIC int32 `json:"nic"`
	// The letter that follows a server's name in the name of this port: nothing, or a to e.
	//
	// +optional
	// +kubebuilder:validation:Enum="";a;b;c;d;e
	Suffix string `json:"suffix,omitempty"`
	// The network.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=43
	// +kubebuilder:validation:XValidation:rule="isCIDR(self)",message="networks[].cidr must be a network such as 192.168.3.0/24"
	CIDR string `json:"cidr,omitempty"`
	// The addresses, in the order of spec.slots, as a list such as 192.168.3.1+44. Without it the ports have none.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:XValidation:rule="self.matches('^[0-9][-+.,0-9]*$')",message="networks[].range must be a list of addresses such as 192.168.3.1+44, without spaces"
	Range string `json:"range,omitempty"`
}

// ChassisPower bounds what servers draw.
type ChassisPower struct {
	// The power that the chassis may draw, in watts; default: as the model says. No server is switched on by the operator beyond that.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100000
	BudgetWatts int32 `json:"budgetWatts,omitempty"`
	// How many servers may be starting at the same time.
	//
	// +optional
	// +kubebuilder:default=8
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=64
	StartsAtOnce int32 `json:"startsAtOnce,omitempty"`
}

// ChassisFencing says whose members may have a server switched off.
type ChassisFencing struct {
	// The namespaces of Stores that may have a lost node's server switched off (recovery.fencing.type: BMC). Default: none.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=63
	Namespaces []string `json:"namespaces,omitempty"`

	// The treatment of a server whose power was taken away for a Store, once that Store does not need it to be off any more. SwitchOn: it
	// is switched on, unless its spec.power is Off. StayOff: somebody else switches it on.
	//
	// +optional
	// +kubebuilder:default=SwitchOn
	Afterwards FencedServer `json:"afterwards,omitempty"`
}

// FencedServer is what becomes of a server after fencing.
//
// +kubebuilder:validation:Enum=SwitchOn;StayOff
type FencedServer string

const (
	// FencedSwitchesOn means that it is switched on.
	FencedSwitchesOn FencedServer = "SwitchOn"
	// FencedStaysOff means that it stays off until somebody switches it on.
	FencedStaysOff FencedServer = "StayOff"
)

// SwitchPorts says which ports of a switch the servers' NICs of one number are plugged into. The switch speaks SNMPv3 with authentication
// by SHA-256 and encryption by AES, and has IF-MIB.
type SwitchPorts struct {
	// The NIC: 1 is the first.
	//
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=8
	NIC int32 `json:"nic"`

	// The address of the switch's SNMP agent.
	//
	// +kubebuilder:validation:MaxLength=45
	// +kubebuilder:validation:XValidation:rule="isIP(self) && (ip(self).isGlobalUnicast() || ip(self).isLoopback())",message="switchPorts[].address must be an address that a switch can have, such as 192.168.5.211"
	Address string `json:"address"`

	// Its UDP port.
	//
	// +optional
	// +kubebuilder:default=161
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	UDPPort int32 `json:"udpPort,omitempty"`

	// The names of the ports (ifName), in which %d stands for the number of the slot: Gi0/%d.
	//
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z0-9/:._ -]*%d[A-Za-z0-9/:._ -]*$')",message="switchPorts[].name must have %d once, for the slot, such as Gi0/%d"
	Name string `json:"name"`

	// The Secret of type rcbox.dev/switch with the keys username, password (for authentication) and privacyPassword (for encryption), in
	// the operator's namespace. Both passwords have at least 8 characters.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	CredentialsSecret string `json:"credentialsSecret"`
}

const (
	// SecretTypeSwitch is the type of Secrets with passwords of switches.
	SecretTypeSwitch corev1.SecretType = "rcbox.dev/switch" //nolint:gosec // a type, not a password
	// PrivacyPasswordKey of such a Secret is the password that frames are encrypted with.
	PrivacyPasswordKey = "privacyPassword"
)

// SecretTypeBMC is the type of Secrets with passwords of BMCs. Those of other types are not used, whatever a Chassis names.
const SecretTypeBMC corev1.SecretType = "rcbox.dev/bmc" //nolint:gosec // a type, not a password

// PreviousPasswordKey is the key of a password that was in use before, in the Secret of spec.management.credentialsSecret.
const PreviousPasswordKey = "previousPassword"

// Conditions of a Chassis.
const (
	// ConditionManagementReady means that all of its BMCs answer.
	ConditionManagementReady = "ManagementReady"
	// ConditionServicesReady means that every box host in its networks serves what it is to serve.
	ConditionServicesReady = "ServicesReady"
	// ConditionInstalled means that each server that is to be a node is one. It is there while spec.boot.install is New.
	ConditionInstalled = "Installed"
	// ConditionInventoryComplete means that it is known what is in each slot.
	ConditionInventoryComplete = "InventoryComplete"
	// ConditionAccepted means that the spec contradicts no model and no other Chassis.
	ConditionAccepted = "Accepted"
	// ConditionPowerRedundant means that all of its power supplies work.
	ConditionPowerRedundant = "PowerRedundant"
	// ConditionCoolingRedundant means that all of its fans work.
	ConditionCoolingRedundant = "CoolingRedundant"
	// ConditionSlotsFilled means that no slot of spec.slots is without its blade.
	ConditionSlotsFilled = "SlotsFilled"
	// ConditionLinksUp means that all links of its switch boards that something is connected with are up.
	ConditionLinksUp = "LinksUp"
	// ConditionChainSound means that each cable of spec.chain is named at both of its ends, and that all Chassis that are connected with
	// this one are a tree with one root.
	ConditionChainSound = "ChainSound"
)
