//! The program: see the library in `lib.rs`.

use std::process::ExitCode;

use tikv_jemallocator::Jemalloc;

/// The caches have a budget. Their buffers have many sizes, and one thread takes what another gives
/// back: the C library's allocator keeps much more than that.
#[global_allocator]
static MEMORY: Jemalloc = Jemalloc;

fn main() -> ExitCode {
    uext4_cli::run(std::env::args_os())
}
