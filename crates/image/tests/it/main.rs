//! Images built from real sources, judged by e2fsck and the kernel.

mod archives;
mod atomic;
mod building;
mod container;
mod failures;
mod fixture;
mod inline;
mod layers;
mod oci;
mod profiles;
mod quotas;
mod random;
mod shapes;
mod sharing;
mod sizes;
mod sparse;
mod trees;
mod walk;
