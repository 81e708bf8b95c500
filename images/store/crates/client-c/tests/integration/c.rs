//! Programs in C, and the same as C++, against the header and the library as others get them.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Everything that a careful program is compiled with.
const STRICT: [&str; 7] = [
    "-Wall",
    "-Wextra",
    "-Werror",
    "-Wpedantic",
    "-Wconversion",
    "-Wshadow",
    "-O1",
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Where cargo put the library: beside this program.
fn library_folder() -> PathBuf {
    let this = std::env::current_exe().expect("a path");
    this.parent().expect("a folder").to_owned()
}

struct Folder(PathBuf);

impl Folder {
    /// With the shared object under the name by which programs look for it.
    fn new(name: &str) -> Folder {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).expect("a folder");
        let object = library_folder().join("librcbox.so");
        std::os::unix::fs::symlink(&object, path.join("librcbox.so.0")).expect("a link");
        Folder(path)
    }

    fn compile(&self, compiler: &str, options: &[&str], source: &str) -> PathBuf {
        let name = Path::new(source).file_stem().expect("a name");
        let program = self.0.join(name).with_extension(compiler);
        let mut command = Command::new(compiler);
        command.args(STRICT).args(options);
        command.arg("-I").arg(root().join("include"));
        command.arg(root().join(source)).args(["-x", "none"]);
        command.arg(self.0.join("librcbox.so.0"));
        command.args(["-pthread", "-o"]).arg(&program);
        succeeds(&mut command);
        program
    }

    fn run(&self, with: &[&str], program: &Path, arguments: &[&str]) -> String {
        let mut all = with.iter().map(PathBuf::from).collect::<Vec<_>>();
        all.push(program.to_owned());
        let mut command = Command::new(&all[0]);
        command.args(&all[1..]).args(arguments);
        let output = succeeds(command.env("LD_LIBRARY_PATH", &self.0));
        String::from_utf8(output.stdout).expect("text")
    }
}

fn succeeds(command: &mut Command) -> Output {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}; is it installed?"));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {text}");
    output
}

const C: &[&str] = &["-std=c11", "-x", "c"];
const CXX: &[&str] = &["-std=c++17", "-x", "c++"];

#[test]
fn every_function_does_what_the_header_says() {
    let folder = Folder::new("check");
    let program = folder.compile("cc", C, "tests/check.c");
    test_store::with_store(|locator| {
        assert_eq!(folder.run(&[], &program, &[locator]), "all of it holds\n");
        Ok::<(), ()>(())
    });
}

/// Every byte that the library or the program touches is one that it may, and all are given back.
#[test]
fn valgrind_finds_nothing() {
    if Command::new("valgrind").arg("--version").output().is_err() {
        eprintln!("SKIPPED: valgrind is not installed");
        return;
    }
    let folder = Folder::new("valgrind");
    let program = folder.compile("cc", &[C, &["-g"]].concat(), "tests/check.c");
    test_store::with_store(|locator| {
        let valgrind = [
            "valgrind",
            "--quiet",
            "--error-exitcode=9",
            "--leak-check=full",
            "--errors-for-leak-kinds=definite,indirect",
            "--trace-children=no",
            "--child-silent-after-fork=yes",
        ];
        let said = folder.run(&valgrind, &program, &[locator]);
        assert_eq!(said, "all of it holds\n");
        Ok::<(), ()>(())
    });
}

#[test]
fn a_server_that_dies_ends_no_program() {
    let folder = Folder::new("sigpipe");
    let program = folder.compile("cc", C, "tests/sigpipe.c");
    test_store::with_server(|locator, server| {
        let said = folder.run(&[], &program, &[locator, &server.to_string()]);
        assert_eq!(said, "no signal\n");
        Ok::<(), ()>(())
    });
}

#[test]
fn the_examples_run_as_c_and_as_cxx() {
    let folder = Folder::new("examples");
    for (compiler, options) in [("cc", C), ("c++", CXX)] {
        let hello = folder.compile(compiler, options, "examples/hello.c");
        let readloop = folder.compile(compiler, options, "examples/readloop.c");
        test_store::with_store(|locator| {
            let said = folder.run(&[], &hello, &[locator]);
            let lines: Vec<_> = said.lines().collect();
            assert_eq!(lines.len(), 3, "{said}");
            assert!(lines[0].starts_with("apple is green, version "), "{said}");
            assert!(lines[1].contains("WRONG_VERSION"), "{said}");
            assert_eq!(lines[2], "apple: red");
            let said = folder.run(&[], &readloop, &[locator, "2000", "64"]);
            assert!(said.contains("64 at a time: "), "{said}");
            Ok::<(), ()>(())
        });
    }
}

/// Guides and applications have tables of their own in the store that an example is tried on.
#[test]
fn the_examples_drop_nothing_that_they_have_not_made() {
    let folder = Folder::new("owned");
    for (source, table) in [
        ("examples/hello.c", "hello-c"),
        ("examples/readloop.c", "readloop-c"),
    ] {
        let program = folder.compile("cc", C, source);
        test_store::with_store(|locator| {
            let mut cluster = client::Cluster::connect(locator)?;
            let mut own = |name: &str| {
                let id = cluster.create_table(name, 1)?;
                cluster.write(id, b"apple", b"kept").map(|_| id)
            };
            let (fruit, same) = (own("fruit")?, own(table)?);
            let mut command = Command::new(&program);
            command.arg(locator).env("LD_LIBRARY_PATH", &folder.0);
            let output = command.output().expect("it was compiled");
            let text = String::from_utf8_lossy(&output.stderr);
            assert!(text.contains("there is a table"), "{source}: {text}");
            assert_eq!(output.status.code(), Some(1));
            assert_eq!(cluster.read(same, b"apple")?.value, b"kept"[..]);
            cluster.drop_table(table)?;
            folder.run(&[], &program, &[locator]);
            assert_eq!(cluster.read(fruit, b"apple")?.value, b"kept"[..]);
            Ok::<(), client::Error>(())
        });
    }
}

#[test]
fn the_shared_object_shows_its_own_functions_and_no_others() {
    let object = library_folder().join("librcbox.so");
    let output = succeeds(
        Command::new("nm")
            .args(["-D", "--defined-only"])
            .arg(&object),
    );
    let text = String::from_utf8(output.stdout).expect("text");
    let mut shown: Vec<_> = text
        .lines()
        .filter_map(|line| line.split_whitespace().last())
        .collect();
    shown.sort_unstable();
    let header = std::fs::read_to_string(root().join("include/rcbox.h")).expect("the header");
    let mut declared: Vec<_> = header
        .lines()
        .filter(|line| !line.starts_with([' ', '/', '#']))
        .filter_map(|line| line.split_once('(')?.0.split([' ', '*']).next_back())
        .collect();
    declared.sort_unstable();
    assert!(declared.len() > 25);
    assert_eq!(shown, declared);

    let output = succeeds(Command::new("readelf").arg("-d").arg(&object));
    let wanted = format!("[librcbox.so.{}]", rcbox::RCBOX_ABI);
    assert!(String::from_utf8_lossy(&output.stdout).contains(&wanted));
}
