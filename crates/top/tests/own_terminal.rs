//! The terminal that `top` runs in is restored on every way out: return, panic, signal.

use std::process::Command;

use pinfold_testkit::Terminal;
use pinfold_top::OwnTerminal;

/// Set for the program that a test starts on a terminal of its own.
const PANICS: &str = "PINFOLD_TEST_PANICS";

#[test]
fn a_panic_gives_the_terminal_back_and_ends_the_program() {
    if std::env::var_os(PANICS).is_some() {
        let _screen = OwnTerminal::enter().expect("a terminal");
        // On another thread, as a task of the program: the panic must end everything.
        std::thread::spawn(|| panic!("on purpose")).join().expect_err("never returns");
        return;
    }
    let mut command = Command::new(std::env::current_exe().expect("this test"));
    command.args(["a_panic_gives_the_terminal_back", "--nocapture"]).env(PANICS, "1");
    let mut terminal = Terminal::start(&mut command, 24, 80).expect("a terminal");
    terminal.until("\x1b[?1049h");
    let output = terminal.until("on purpose");
    assert_eq!(terminal.wait().code(), Some(101));
    let (left, said) = (output.find("\x1b[?1049l"), output.find("on purpose"));
    assert!(left.is_some() && left < said, "the message is on the screen that stays: {output:?}");
    assert!(output.contains("\x1b[?25h") && output.contains("\x1b[?1006l"), "{output:?}");
    assert!(terminal.echoes());
}
