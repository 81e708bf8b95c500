//! The shared object says by which name programs look for it: that of its ABI, not that of its file.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,librcbox.so.0");
}
