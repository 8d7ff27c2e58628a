//! Known values of the parts of a prediction.

use super::super::law::Lognormal;
use super::*;

#[test]
fn a_leaf_is_touched_as_often_as_the_exponential_says() {
    for late in [0.0, 1e-9, 1e-4, 0.01, 0.019_999, 0.02, 0.3, 2.0, 40.0, 1e9] {
        let exact = -f64::exp_m1(-late);
        assert!((touched(late) - exact).abs() <= 1e-8 * exact, "{late}");
    }
}

#[test]
fn in_order_events_are_those_of_the_sum_over_all_ages() {
    for (mu, sigma) in [(4.0, 1.5), (5.0, 2.0), (4.0, 1.75)] {
        let law = Lognormal::new(mu, sigma).in_units_of(10.0);
        let setting = Setting {
            law: &law,
            leaf: 512.0,
            frontier: Frontier::new(&law, 0.0),
            at_zero: law.tail(0.0),
        };
        for s in [0.0, 3.0, 100.0, 700.0, 5e3, 1e5, 1e7] {
            let mut direct = s - law.tail(0.0) + law.tail(s);
            for (b, older) in setting.frontier.older.iter().enumerate() {
                let age = b as f64 + 0.5;
                let missing = law.survival(age);
                direct += older * (missing - law.survival(age + s)) / missing;
            }
            let found = setting.in_order_within(s);
            assert!(
                (found - direct).abs() <= 1e-5 * (1.0 + direct.abs()),
                "{mu} {sigma} {s}: {found}, {direct}"
            );
        }
    }
}
