//! include/rcbox.h is what the sources say. `hack/client-c.sh --header` writes it.

use std::path::Path;

#[test]
fn the_header_is_what_the_sources_say() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let path = root.join("include/rcbox.h");
    let config = cbindgen::Config::from_file(root.join("cbindgen.toml")).expect("a config");
    let mut made = Vec::new();
    let modules = [
        "version",
        "status",
        "types",
        "handle",
        "calls",
        "multi",
        "scan",
        "submitted",
    ];
    modules
        .iter()
        .fold(cbindgen::Builder::new(), |builder, module| {
            builder.with_src(root.join("src").join(module).with_extension("rs"))
        })
        .with_config(config)
        .generate()
        .expect("sources that can be read")
        .write(&mut made);
    let made = String::from_utf8(made).expect("text");
    if std::env::var_os("RCBOX_WRITE_HEADER").is_some() {
        std::fs::write(&path, made).expect("written");
        return;
    }
    let there = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        there == made,
        "include/rcbox.h is out of date; run hack/client-c.sh --header and commit what it changes"
    );
}
