//! Generates the admin API from its one source, `api/admin/v1/admin.proto`, without a protoc on the machine.

use std::path::Path;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let api = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../../api/admin/v1");
    let proto = api.join("admin.proto");
    println!("cargo:rerun-if-changed={}", proto.display());
    let descriptors = protox::compile([&proto], [&api])?;
    tonic_prost_build::configure().compile_fds(descriptors)?;
    Ok(())
}
