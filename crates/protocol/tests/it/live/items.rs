//! Items as XML: every value is read back, other elements are refused.

use super::value;
use headwater_protocol::live::{FieldValue, ITEM_BYTES_MAX, ItemError, NewestValues, topic_of};
use headwater_protocol::xmpp::{Element, Limits, Read, Reader, pubsub};
use headwater_types::Value;
use proptest::prelude::*;
use std::path::Path;

fn item(values: Vec<FieldValue>) -> NewestValues {
    NewestValues {
        stream: "pump,id=a".to_owned(),
        source: 0x0102_0304_0506_0708,
        epoch: 10,
        number: 300,
        omitted: 0,
        values,
    }
}

fn of_each_type() -> NewestValues {
    item(vec![
        value("flow", 1_700_000_000_000_000_000, 1.5),
        value("nan", -1, f64::NAN),
        value("inf", i64::MAX, f64::NEG_INFINITY),
        value("zero", 0, -0.0),
        value("count", 1, -7_i64),
        value("total", 2, u64::MAX),
        value("on", 3, true),
        value("name", 4, Value::String("a < b & 'c'\n".to_owned())),
        value("bell", 5, Value::String("\u{7}".to_owned())),
        value("none", 6, Value::String(String::new())),
        value("raw", 7, Value::Bytes(vec![0, 1, 255])),
        value("a\u{1}b", 8, Value::Bytes(Vec::new())),
    ])
}

/// What a server passes on of an element: its text, read again.
fn passed_on(element: &Element) -> Element {
    let mut text = String::from(
        "<stream:stream xmlns='jabber:client' xmlns:stream='http://etherx.jabber.org/streams' version='1.0'>",
    );
    element.write("jabber:client", &mut text);
    let mut reader = Reader::new(Limits::default());
    reader.push(text.as_bytes());
    assert!(matches!(reader.next(), Ok(Some(Read::StreamStart(_)))));
    match reader.next() {
        Ok(Some(Read::Stanza(stanza))) => stanza,
        other => panic!("{other:?} of {text}"),
    }
}

/// Equal in every bit of a float.
fn assert_same(left: &NewestValues, right: &NewestValues) {
    assert_eq!(format!("{left:?}"), format!("{right:?}"));
}

#[test]
fn an_item_has_the_text_it_always_had() {
    let of_each = of_each_type();
    let mut omitting = item(vec![value("flow", 5, 0.1)]);
    omitting.omitted = 2;
    let stanzas = [
        of_each.element(),
        omitting.element(),
        pubsub::publish(
            &topic_of("headwater/values", "pump,id=a"),
            omitting.element(),
        ),
        pubsub::retract(&topic_of("headwater/values", "pump,id=a")),
    ];
    let lines = stanzas.iter().map(|stanza| {
        let mut text = String::new();
        stanza.write("jabber:client", &mut text);
        text + "\n"
    });
    let text: String = lines.collect();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/values.xml");
    if std::env::var_os("HEADWATER_WRITE_GOLDEN").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    assert_eq!(std::fs::read_to_string(path).unwrap(), text);
    assert_same(
        &NewestValues::read(&passed_on(&of_each.element())).unwrap(),
        &of_each,
    );
}

#[test]
fn other_elements_are_refused() {
    let good = item(vec![value("flow", 5, 0.1)]).element();
    let with = |name: &str, text: &str| {
        let mut changed = good.clone();
        changed.attributes.retain(|(own, _)| own != name);
        NewestValues::read(&changed.with(name, text)).map(|_| ())
    };
    assert_eq!(with("number", "300"), Ok(()));
    let long = "x".repeat(257);
    for (name, text) in [
        ("number", ""),
        ("number", "+1"),
        ("number", "-1"),
        ("number", "18446744073709551616"),
        ("source", "1"),
        ("source", "010203040506070G"),
        ("epoch", "000000000000000A"),
        ("omitted", "x"),
        ("stream", ""),
        ("stream", &long),
    ] {
        assert!(
            matches!(with(name, text), Err(ItemError::Attribute(of, _)) if of == name),
            "{name} {text}"
        );
    }
    let ns = good.ns.clone();
    let read = |child: Element| NewestValues::read(&good.clone().with_child(child)).map(|_| ());
    let field = || Element::new(&ns, "value").with("field", "f");
    let at = || field().with("time", "1");
    assert_eq!(read(at().with("type", "string")), Ok(()));
    assert!(matches!(
        read(Element::new(&ns, "other")),
        Err(ItemError::Element(_))
    ));
    assert!(matches!(
        read(Element::new("x", "value")),
        Err(ItemError::Element(_))
    ));
    for (kind, text) in [
        ("double", "inf"),
        ("double", "1e999"),
        ("double", ""),
        ("long", "1.0"),
        ("unsignedLong", "-1"),
        ("boolean", "1"),
        ("string64", "?"),
        ("string64", "/w=="),
        ("base64Binary", "AQI"),
    ] {
        let found = read(at().with("type", kind).saying(text));
        assert_eq!(
            found,
            Err(ItemError::Value("f".to_owned())),
            "{kind} {text}"
        );
    }
    let nested = at()
        .with("type", "string")
        .with_child(Element::new(&ns, "b"));
    assert_eq!(read(nested), Err(ItemError::Value("f".to_owned())));
    for malformed in [
        field().with("type", "string"),
        at().with("type", "float"),
        at().with("field64", "Zg==").with("type", "string"),
        Element::new(&ns, "value")
            .with("time", "1")
            .with("field64", "?"),
    ] {
        let found = read(malformed);
        assert!(matches!(found, Err(ItemError::Attribute(..))), "{found:?}");
    }
    assert!(matches!(
        NewestValues::read(&Element::new(&ns, "latest")),
        Err(ItemError::Element(_))
    ));
    // Many empty values are as large as few long ones.
    let mut many = good.clone();
    for _ in 0..1_000 {
        many = many.with_child(at().with("type", "string"));
    }
    assert!(matches!(NewestValues::read(&many), Err(ItemError::Long(_))));
}

#[test]
fn fields_that_do_not_fit_are_left_out_and_counted() {
    let long = |len| Value::String("x".repeat(len));
    let all = item(vec![
        value("a", 1, long(ITEM_BYTES_MAX / 2)),
        value("b", 1, long(ITEM_BYTES_MAX)),
        value("c", 1, 1.0),
        value("d", 1, Value::Bytes(vec![0; ITEM_BYTES_MAX / 2])),
    ]);
    let fits = all.bounded();
    let fields: Vec<&str> = fits.values.iter().map(|v| v.field.as_str()).collect();
    assert_eq!((fields, fits.omitted), (vec!["a", "c"], 2));
    assert_same(&NewestValues::read(&fits.element()).unwrap(), &fits);
}

fn any_value() -> impl Strategy<Value = Value> {
    prop_oneof![
        any::<f64>().prop_map(|v| Value::F64(if v.is_nan() { f64::NAN } else { v })),
        any::<i64>().prop_map(Value::I64),
        any::<u64>().prop_map(Value::U64),
        any::<bool>().prop_map(Value::Bool),
        any::<String>().prop_map(Value::String),
        prop::collection::vec(any::<u8>(), 0..40).prop_map(Value::Bytes),
    ]
}

proptest! {
    #[test]
    fn every_item_is_read_back(
        values in prop::collection::vec((any::<String>(), any::<i64>(), any_value()), 0..8),
        numbers in (any::<u64>(), any::<u64>(), any::<u64>(), any::<u64>()),
    ) {
        let values = values.into_iter().map(|(field, time, of)| FieldValue { value: of, ..value(&field, time, 0.0) });
        let (source, epoch, number, omitted) = numbers;
        let item = NewestValues {
            stream: "pump,id=a\\,b".to_owned(),
            source,
            epoch,
            number,
            omitted: omitted / 2,
            values: values.collect(),
        };
        let item = item.bounded();
        let read = NewestValues::read(&passed_on(&item.element())).unwrap();
        prop_assert_eq!(format!("{read:?}"), format!("{item:?}"));
    }
}
