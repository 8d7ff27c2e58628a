//! SCRAM by the examples of RFC 5802 and RFC 7677, and what must not be answered.

use headwater_protocol::xmpp::{Hash, Scram, ScramError};

const NONCE: &str = "fyko+d2lbbFgONRv9qkxdawL";

fn of_rfc() -> Scram {
    Scram::new(Hash::Sha1, "user", "pencil", NONCE).unwrap()
}

#[test]
fn the_examples_of_the_standards() {
    let mut scram = of_rfc();
    assert_eq!(scram.first(), format!("n,,n=user,r={NONCE}"));
    let answer = scram.answer(&format!(
        "r={NONCE}3rfcNHYJY1ZVvWVs7j,s=QSXCR+Q6sek8bf92,i=4096"
    ));
    let wanted = format!("c=biws,r={NONCE}3rfcNHYJY1ZVvWVs7j,p=v0X8v3Bz2T0CJGbJQyF0X+HI4Ts=");
    assert_eq!(answer.unwrap(), wanted);
    assert_eq!(scram.finish("v=rmF9pqV8S7suAoZWja4dJRkFsKQ="), Ok(()));

    let nonce = "rOprNGfwEbeRWgbNEkqO";
    let mut scram = Scram::new(Hash::Sha256, "user", "pencil", nonce).unwrap();
    let theirs = format!("{nonce}%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0");
    let answer = scram.answer(&format!("r={theirs},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"));
    let wanted = format!("c=biws,r={theirs},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=");
    assert_eq!(answer.unwrap(), wanted);
    assert_eq!(
        scram.finish("v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="),
        Ok(())
    );
}

#[test]
fn a_server_that_does_not_know_the_password_is_found_out() {
    let challenge = format!("r={NONCE}x,s=QSXCR+Q6sek8bf92,i=4096");
    let mut scram = of_rfc();
    assert!(scram.finish("v=rmF9pqV8S7suAoZWja4dJRkFsKQ=").is_err());
    scram.answer(&challenge).unwrap();
    for last in [
        "",
        "v=",
        "v=AAAA",
        "v=rmF9pqV8S7suAoZWja4dJRkFsKQ=",
        "x=1",
        "v=%%",
    ] {
        assert!(scram.finish(last).is_err(), "{last}");
    }
    let refused = scram.finish("e=invalid-proof").unwrap_err();
    assert_eq!(refused, ScramError::Refused("invalid-proof".to_owned()));
    // One proof for one challenge.
    assert!(scram.answer(&challenge).is_err());
}

#[test]
fn challenges_that_must_not_be_answered() {
    let error_of = |challenge: &str| of_rfc().answer(challenge).unwrap_err();
    let salt = "s=QSXCR+Q6sek8bf92";
    assert_eq!(
        error_of(&format!("r=other,{salt},i=4096")),
        ScramError::Nonce
    );
    assert_eq!(
        error_of(&format!("r={NONCE},{salt},i=4096")),
        ScramError::Nonce
    );
    for rounds in [0, 1, 4_095, 1_000_001, u32::MAX] {
        let challenge = format!("r={NONCE}x,{salt},i={rounds}");
        assert_eq!(error_of(&challenge), ScramError::Rounds(rounds));
    }
    for challenge in [
        String::new(),
        format!("m=ext,r={NONCE}x,{salt},i=4096"),
        format!("r={NONCE}x,s=*,i=4096"),
        format!("r={NONCE}x,{salt},i=-1"),
        format!("r={NONCE}x,{salt}"),
        format!("r={NONCE}{},{salt},i=4096", "x".repeat(5_000)),
    ] {
        assert!(
            matches!(error_of(&challenge), ScramError::Message(_)),
            "{challenge}"
        );
    }
    let other = Scram::new(Hash::Sha1, "user", "pässword", NONCE).unwrap_err();
    assert_eq!(other, ScramError::Characters);
    let named = Scram::new(Hash::Sha1, "a=b,c", "x", "n").unwrap();
    assert_eq!(named.first(), "n,,n=a=3Db=2Cc,r=n");
}
