fn main() {
    let args: Vec<u64> = std::env::args().skip(1).map(|a| a.parse().unwrap()).collect();
    match pinfold_simulation::history::run(args[0], args[1], |_| {}) {
        Ok(summary) => println!("{summary:?}"),
        Err(broken) => {
            println!("{}", broken.trace.join("\n"));
            println!(
                "seed {} (history {}): {}",
                broken.seed,
                broken.seed - args[0],
                &broken.what[..broken.what.len().min(900)]
            );
        }
    }
}
