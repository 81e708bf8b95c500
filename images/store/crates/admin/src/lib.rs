//! The admin API of a store (gRPC), generated from `api/admin/v1/admin.proto`: messages, client and server.
//!
//! Units, errors and the rules by which it changes are described in that file; the field docs here come from it.

#[allow(clippy::all, missing_docs)]
mod generated {
    tonic::include_proto!("rcbox.admin.v1");
}
pub use generated::*;

/// The name under which the coordinator reports the API's health (`grpc.health.v1.Health`).
pub const SERVICE_NAME: &str = "rcbox.admin.v1.Admin";
