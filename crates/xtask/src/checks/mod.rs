//! Checks that CI runs besides the tests: fuzzing, simulation, escapes from a stop, instruction counts.

pub mod escapes;
pub mod fuzz;
pub mod instructions;
pub mod simulate;
