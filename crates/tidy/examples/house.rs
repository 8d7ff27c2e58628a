//! Prints, for the folders of crates given, the circles among the modules of each room with the
//! places that make them, an order from the ground up, and the counts that may only fall. With
//! `--arrows`, every arrow at the top.
#![allow(clippy::disallowed_methods, reason = "an example")]
#![allow(clippy::print_stdout, reason = "it prints")]

use tidy::counts;
use tidy::modules::Crate;

fn main() {
    let all = std::env::args().any(|a| a == "--arrows");
    for folder in std::env::args().skip(1).filter(|a| a != "--arrows") {
        let of = Crate::read(&folder);
        println!("{folder}");
        if all {
            for ((from, to), (source, line)) in of.between(&[]) {
                println!("  {from} -> {to}  {source}:{line}");
            }
        }
        for parent in &of.modules {
            for circle in of.circles(parent) {
                println!("  {}: {}", parent.join("::"), circle.join(", "));
                for ((from, to), (source, line)) in of.between(parent) {
                    if circle.contains(&from) && circle.contains(&to) {
                        println!("    {from} -> {to}  {source}:{line}");
                    }
                }
            }
        }
        println!("  order: {:?}", of.order(&[]));
        for (what, count) in counts::of(&folder) {
            println!("  {count:5} {what}");
        }
    }
}
