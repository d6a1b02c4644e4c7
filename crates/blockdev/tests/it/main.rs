//! Tests through the public interface, against the machine's own tools where they are installed.

mod cut;
mod file;
mod partition;
