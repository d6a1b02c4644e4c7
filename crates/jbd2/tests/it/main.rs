//! Recovery: hand-made logs of every kind, and journals that the kernel left behind; both judged
//! by the kernel too where this may mount.

mod behind;
mod cases;
mod damaged;
mod history;
mod hostile;
mod judge;
mod kernel;
mod maker;
mod power_cut;
mod revokes;
mod toy;
