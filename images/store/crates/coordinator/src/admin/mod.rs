//! What people see and order: settings, formats, and members that leave.

pub(crate) mod departures;
pub(crate) mod settings;
pub(crate) mod upgrade;
