//! Group 1: foreground commands and yielding.

use pinfold_api::types::Outcome;
use pinfold_testkit::Pinfold;

use crate::PINFOLD;

#[test]
fn fg_exit_code_exact() {
    let pinfold = Pinfold::start(PINFOLD);
    for code in [0, 3, 42] {
        let (record, output) = pinfold.run(&format!("echo before; exit {code}"));
        assert_eq!(record.outcome, Some(Outcome::Exited { code }));
        assert_eq!(output, "before\n");
    }
}
