//! The laws of the design, each a test of its name.
