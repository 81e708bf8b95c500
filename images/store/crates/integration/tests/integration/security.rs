//! Members that show certificates to each other and to their coordinator, as real processes.

use std::io::{IoSlice, Read, Write};
use std::net::{SocketAddr, SocketAddrV4, TcpStream};
use std::path::PathBuf;

use client::{Cluster, TableId};
use prost::Message;
use tempfile::TempDir;
use test_certificates::Authority;
use tls::{Admits, Guard};
use wire::member::{Hello, ToCoordinator, shard};

use crate::common::{Coordinator, DEADLINE, Server, rcbox, wait_for};

/// The certificates of the store's processes, each in a folder of its own.
struct Certificates {
    authority: Authority,
    folder: TempDir,
}

impl Certificates {
    fn new() -> Certificates {
        Certificates {
            authority: Authority::new("a store"),
            folder: tempfile::tempdir().unwrap(),
        }
    }

    /// The folder of whoever is named by the end of this identity.
    fn of(&self, role: &str) -> String {
        let folder: PathBuf = self.folder.path().join(role.replace('/', "-"));
        if !folder.exists() {
            std::fs::create_dir(&folder).unwrap();
            let uri = format!("rcbox://default/box/{role}");
            let issued = self.authority.issue(&[&uri], test_certificates::USUAL);
            test_certificates::write(&folder, &self.authority.pem(), &issued);
        }
        folder.to_str().unwrap().to_owned()
    }
}

fn start(coordinator: &Coordinator, name: &str, more: &[&str]) -> Server {
    let own = ["--hostId", name, "-r", "1", "--segmentMB", "2"];
    Server::start(coordinator, name, &[&own, more].concat())
}

fn cluster(coordinator: &Coordinator) -> Cluster {
    let options = client::Options {
        timeout: DEADLINE,
        ..client::Options::default()
    };
    Cluster::with_options(&coordinator.locator, options).unwrap()
}

fn write_all(cluster: &mut Cluster, table: TableId) {
    for number in 0..50 {
        let text = format!("value {number}");
        cluster
            .write(table, text.as_bytes(), text.as_bytes())
            .unwrap();
    }
}

fn read_all(cluster: &mut Cluster, table: TableId) {
    for number in 0..50 {
        let text = format!("value {number}");
        let object = cluster.read(table, text.as_bytes()).unwrap();
        assert_eq!(object.value, text.as_bytes(), "{text}");
    }
}

/// Opens a connection for members with the certificate in a folder, and says that it is this one, until the other side has ended it:
/// gives what that says of it.
fn speak_as(member: &str, folder: &str, address: SocketAddrV4) -> String {
    let hello = ToCoordinator {
        kind: Some(shard::Kind::Hello(Hello {
            member: member.to_owned(),
            ..Hello::default()
        })),
        ..ToCoordinator::default()
    };
    let hello = hello.encode_to_vec();
    let header = transport::member::header(u32::try_from(hello.len()).unwrap());
    let words = [&transport::member::preface()[..], &header, &hello].concat();

    let guard = Guard::open(folder.as_ref()).unwrap();
    let mut channel = guard.connect(Admits::Coordinator).unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    let mut scratch = vec![0; 256 << 10];
    let mut is_said = false;
    loop {
        if channel.is_established() && !is_said {
            channel.seal(&[IoSlice::new(&words)], words.len()).unwrap();
            is_said = true;
        }
        let sealed = channel.sealed().to_vec();
        // If the connection is gone, the next read says so.
        let _ = stream.write_all(&sealed);
        channel.sent(sealed.len());
        let begun = channel.begin(&mut scratch);
        let received = stream.read(&mut scratch[begun..]).unwrap_or(0);
        let opened = channel.open(&mut scratch[..begun + received], &mut [0; 4096]);
        match opened {
            Err(error) => return error.to_string(),
            Ok(_) if received == 0 => return "the end".to_owned(),
            Ok(_) => {}
        }
    }
}

#[test]
fn whoever_has_no_certificate_of_the_store_is_no_member() {
    let ours = Certificates::new();
    let foreign = Certificates::new();
    let mut coordinator = Coordinator::start(&["--tls", &ours.of("coordinator")]);
    coordinator.operator = Some(ours.of("operator"));
    let mut servers: Vec<Server> = (0..3)
        .map(|number| {
            let name = format!("m{number}");
            let folder = ours.of(&format!("member/{name}"));
            start(&coordinator, &name, &["--tls", &folder])
        })
        .collect();
    for server in &servers {
        server.wait_ready();
    }
    let mut cluster = cluster(&coordinator);
    let table = cluster.create_table("table", 3).unwrap();
    write_all(&mut cluster, table);
    // No certificate, that of another member, that of a store of somebody else, that of the coordinator.
    let stranger = start(&coordinator, "stranger", &[]);
    stranger
        .process
        .line(&["connection to the coordinator lost"]);
    let told = speak_as("stranger", &ours.of("member/m1"), coordinator.member);
    assert_eq!(told, "the end");
    coordinator
        .process
        .line(&["its certificate is not that of the member", "stranger"]);
    let stranger = start(
        &coordinator,
        "stranger",
        &["--tls", &foreign.of("member/stranger")],
    );
    stranger.process.line(&[
        "the coordinator cannot be reached",
        "its authority is not in the ca.crt",
    ]);
    drop(stranger);
    let told = speak_as("m1", &ours.of("operator"), coordinator.member);
    assert!(told.contains("may not be here"), "{told}");
    coordinator.wait_for_members(3);
    // The port for other servers answers nothing but an alert.
    let peers = servers[0].process.line(&["serving other servers"]);
    let peers: SocketAddr = peers["listening"].as_str().unwrap().parse().unwrap();
    let mut stream = TcpStream::connect(peers).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    stream.write_all(&[7; 64]).unwrap();
    let mut said = Vec::new();
    stream.read_to_end(&mut said).unwrap();
    assert!(said.len() < 20, "{said:?}");
    // The data of one of them comes back from the others, which read each other's copies.
    let mut dead = servers.remove(0);
    dead.process.signal("KILL");
    dead.process.wait();
    read_all(&mut cluster, table);
    write_all(&mut cluster, table);
}

#[test]
fn who_administers_a_store_shows_a_certificate() {
    let (ours, foreign) = (Certificates::new(), Certificates::new());
    let mut coordinator = Coordinator::start(&["--tls", &ours.of("coordinator")]);
    let refused = |tls: Option<&str>, reason: &str| {
        let mut arguments = vec!["status"];
        arguments.extend(tls.iter().flat_map(|folder| ["--tls", folder]));
        let output = rcbox(&coordinator.locator, &arguments, b"");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && text.contains(reason), "{text}");
    };
    refused(None, "it asks for a certificate");
    refused(Some("/nowhere"), "/nowhere/ca.crt");
    refused(Some(&ours.of("member/m0")), "it may not be here");
    refused(Some(&ours.of("coordinator")), "it may not be here");
    refused(
        Some(&foreign.of("operator")),
        "its authority is not in the ca.crt",
    );
    coordinator.operator = Some(ours.of("operator"));
    assert_eq!(
        coordinator.wait_for_members(0)["members"],
        serde_json::json!([])
    );
    // With a certificate, nothing is said to whom it is not known.
    let open = Coordinator::start(&[]);
    let output = rcbox(
        &open.locator,
        &["--tls", &ours.of("operator"), "status"],
        b"",
    );
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(text.contains("does not speak TLS"), "{text}");
}

#[test]
fn certificates_of_the_command_line_make_a_store() {
    let folder = tempfile::tempdir().unwrap();
    let at = |role: &str| folder.path().join(role).to_str().unwrap().to_owned();
    let roles = ["coordinator", "member/m0", "operator"];
    let root = folder.path().to_str().unwrap();
    let output = rcbox("", &[&["certificates", root], &roles[..]].concat(), b"");
    assert!(output.status.success(), "{output:?}");
    let mut coordinator = Coordinator::start(&["--tls", &at("coordinator")]);
    coordinator.operator = Some(at("operator"));
    let server = Server::start(&coordinator, "m0", &["--tls", &at("member/m0")]);
    server.wait_ready();
    coordinator.wait_for_members(1);
    // New files are used within seconds, and nothing ends.
    let output = rcbox("", &["certificates", root, "member/m0"], b"");
    assert!(output.status.success(), "{output:?}");
    server.process.line(&["new certificates are in use"]);
    coordinator.wait_for_members(1);
}

#[test]
fn a_store_becomes_encrypted_while_it_serves() {
    let ours = Certificates::new();
    let disks = tempfile::tempdir().unwrap();
    let state = format!("file:{}", disks.path().join("state").display());
    let disk = |name: &str| disks.path().join(name).to_str().unwrap().to_owned();
    let mut coordinator = Coordinator::start(&["--state", &state]);
    let names = ["m0", "m1", "m2"];
    let mut servers: Vec<Server> = names
        .iter()
        .map(|name| start(&coordinator, name, &["-f", &disk(name)]))
        .collect();
    for server in &servers {
        server.wait_ready();
    }
    let mut cluster = cluster(&coordinator);
    let table = cluster.create_table("table", 3).unwrap();
    write_all(&mut cluster, table);
    for mode in ["mixed", "required"] {
        let exchange = |servers: &mut Vec<Server>, coordinator: &Coordinator, number: usize| {
            let mut former = servers.remove(number);
            former.process.signal("KILL");
            former.process.wait();
            let folder = ours.of(&format!("member/{}", names[number]));
            let file = disk(names[number]);
            let options = ["-f", &file, "--tls", &folder, "--security", mode];
            let server = start(coordinator, names[number], &options);
            server.wait_ready();
            // Encrypted, as far as the others can: the last one finds nobody who cannot.
            if number == 2 {
                server
                    .process
                    .line(&["connecting to a backup", "encrypted"]);
            }
            servers.insert(number, server);
        };
        // In the middle of the members, the coordinator; whoever is first speaks with those who are as before.
        exchange(&mut servers, &coordinator, 0);
        read_all(&mut cluster, table);
        coordinator.process.signal("KILL");
        coordinator.process.wait();
        let options = [
            "--state",
            &state,
            "--tls",
            &ours.of("coordinator"),
            "--security",
            mode,
        ];
        coordinator = coordinator.start_again_with(&options);
        if mode == "required" {
            coordinator.operator = Some(ours.of("operator"));
        }
        coordinator.wait_for_members(3);
        for number in 1..3 {
            exchange(&mut servers, &coordinator, number);
            coordinator.wait_for_members(3);
            read_all(&mut cluster, table);
            write_all(&mut cluster, table);
        }
    }
    // Now nobody else is let in.
    let stranger = start(&coordinator, "stranger", &[]);
    stranger
        .process
        .line(&["connection to the coordinator lost"]);
    wait_for("three members", || Some(coordinator.wait_for_members(3)));
}

#[test]
fn options_that_do_not_fit_are_explained_at_the_start() {
    let run = |arguments: &[&str]| {
        let output = std::process::Command::new(crate::common::program("coordinator"))
            .args(["-C", "tcp:host=127.0.0.1,port=0"])
            .args(arguments)
            .output()
            .unwrap();
        assert!(!output.status.success());
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let text = run(&["--security", "required"]);
    assert!(
        text.contains("needs a certificate: name its folder with --tls"),
        "{text}"
    );
    let ours = Certificates::new();
    let text = run(&["--tls", &ours.of("member/m0")]);
    assert!(text.contains("this process is a coordinator"), "{text}");
    let text = run(&["--tls", "/nowhere"]);
    assert!(text.contains("cannot read /nowhere/ca.crt"), "{text}");
}
