//! Hosted machine.
