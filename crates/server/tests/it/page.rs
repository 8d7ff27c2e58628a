//! The page's files: what browsers may keep, and what stands there when the page was not built.

use crate::support::{Running, client};

#[test]
fn the_first_page_is_there_and_is_asked_for_anew() {
    let server = Running::start();
    let client = client();
    let mut answer = client.get(server.url("/")).call().unwrap();
    assert_eq!(answer.status(), 200);
    let kind = answer.headers()["content-type"]
        .to_str()
        .unwrap()
        .to_owned();
    assert_eq!(kind, "text/html; charset=utf-8");
    let etag = answer.headers().get("etag").cloned();
    let text = answer.body_mut().read_to_string().unwrap();
    let Some(etag) = etag else {
        // Built without the page: it says how to build it.
        assert!(text.contains("make web") && text.contains("api/openapi.json"));
        return;
    };
    let again = client
        .get(server.url("/"))
        .header("If-None-Match", etag.to_str().unwrap())
        .call()
        .unwrap();
    assert_eq!(again.status(), 304);
    assert_eq!(again.headers()["cache-control"], "no-cache");

    // Every file it names is there, small if wanted, and may be kept.
    let names = text.split('"').filter(|part| part.contains("assets/"));
    let mut count = 0;
    for name in names.map(|name| name.trim_start_matches("./")) {
        let url = server.url(&format!("/{}", name.trim_start_matches('/')));
        for encoding in ["gzip, br", "identity", "gzip;q=0"] {
            let answer = client
                .get(&url)
                .header("Accept-Encoding", encoding)
                .call()
                .unwrap();
            assert_eq!(answer.status(), 200, "{name}");
            let keep = answer.headers()["cache-control"].to_str().unwrap();
            assert!(keep.contains("immutable"), "{keep}");
            assert_eq!(answer.headers()["vary"], "accept-encoding");
        }
        count += 1;
    }
    assert!(count > 0, "the page names no file:\n{text}");
}

#[test]
fn files_the_page_does_not_have_are_not_found() {
    let server = Running::start();
    let client = client();
    for path in [
        "/assets/x.js",
        "/assets/../index.html",
        "/assets/%2e%2e/index.html",
        "/assets/",
        "/assets/%ff",
    ] {
        let answer = client.get(server.url(path)).call().unwrap();
        assert!([400, 404].contains(&answer.status().as_u16()), "{path}");
    }
}
