//! Generates the admin API from its one source, `api/admin/v1/admin.proto`, without a protoc on the machine.

use std::path::Path;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Asked for when the script runs: a checkout beside this one may have built it, with the same target directory.
    let manifest = std::env::var_os("CARGO_MANIFEST_DIR").ok_or("cargo says where the crate is")?;
    let api = Path::new(&manifest).join("../../../../api/admin/v1");
    let proto = api.join("admin.proto");
    println!("cargo:rerun-if-changed={}", proto.display());
    let descriptors = protox::compile([&proto], [&api])?;
    tonic_prost_build::configure().compile_fds(descriptors)?;
    Ok(())
}
