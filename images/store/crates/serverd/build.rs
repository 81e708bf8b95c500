//! Of what DPDK's libraries call, one function is ours (`dpdk/shim/shim.c`): they find it only if programs show it.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var_os("CARGO_FEATURE_DPDK").is_some() {
        println!("cargo::rustc-link-arg-bins=-Wl,--export-dynamic-symbol=numa_available");
    }
}
