//! Reports the lab how it was built: its records say so.

use std::env;
use std::process::Command;

fn main() {
    let rustc = env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
    let version = Command::new(rustc).arg("--version").output();
    let version = version.map_or_else(|_| Vec::new(), |output| output.stdout);
    println!(
        "cargo:rustc-env=LAB_RUSTC={}",
        String::from_utf8_lossy(&version).trim()
    );
    let profile = env::var("PROFILE").unwrap_or_default();
    let level = env::var("OPT_LEVEL").unwrap_or_default();
    println!("cargo:rustc-env=LAB_PROFILE={profile}, opt-level {level}");
    println!("cargo:rerun-if-changed=build.rs");
}
