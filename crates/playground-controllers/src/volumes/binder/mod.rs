//! The binder: finds a volume for each claim, completes bindings that the scheduler or a provisioner has begun, and
//! releases volumes whose claims are gone.
//!
//! A binding is four writes, each of which can be the last before a crash: the volume's `claimRef`, its phase, the
//! claim's `volumeName`, its phase. Whatever is missing is written when the claim is synced again.

mod claims;
mod volumes;
mod writes;
