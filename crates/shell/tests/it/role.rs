//! A tiny role: it adds up numbers. They come in by a route, a worker adds them, and a door tells
//! the sum.

use axum::extract::State;
use axum::http::StatusCode;
use headwater_shell::{ErrorAnswer, Needs, Role, Route, Shell, Work};
use prometheus_client::metrics::counter::Counter;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use tokio::sync::{Notify, mpsc};

/// What is seen of a role from outside, also after its end.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) sum: AtomicU64,
    /// Numbers that were added.
    pub(crate) added: Counter,
    /// Lets requests for `/wait` go on.
    pub(crate) go_on: Notify,
    /// Whether a request for `/wait` is being worked on.
    pub(crate) waits: AtomicBool,
    pub(crate) closed: AtomicBool,
    /// Whether its door is to panic.
    pub(crate) listener_panics: AtomicBool,
    /// Whether its end is to fail.
    pub(crate) fails: AtomicBool,
}

/// What its handlers share.
#[derive(Clone)]
struct Adding {
    tally: Arc<Tally>,
    numbers: mpsc::UnboundedSender<u64>,
}

pub(crate) struct Adder {
    tally: Arc<Tally>,
    numbers: mpsc::UnboundedSender<u64>,
    /// Told once no more numbers come.
    ended: Arc<Notify>,
    /// Until it is begun.
    receiver: Option<(mpsc::UnboundedReceiver<u64>, TcpListener)>,
}

/// What went wrong at its end.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct AdderError(pub(crate) String);

impl From<std::io::Error> for AdderError {
    fn from(error: std::io::Error) -> AdderError {
        AdderError(error.to_string())
    }
}

impl Adder {
    pub(crate) fn new(tally: &Arc<Tally>, door: TcpListener) -> Adder {
        let (numbers, taken) = mpsc::unbounded_channel();
        Adder {
            tally: Arc::clone(tally),
            numbers,
            ended: Arc::default(),
            receiver: Some((taken, door)),
        }
    }
}

impl Role for Adder {
    type Error = AdderError;

    fn begin(&mut self, shell: &Arc<Shell>) -> Work {
        let (numbers, door) = self.receiver.take().expect("it is begun once");
        Work {
            front_ends: vec![Box::pin(serve_sum(
                Arc::clone(&self.tally),
                Arc::clone(shell),
                door,
            ))],
            workers: vec![Box::pin(add(
                Arc::clone(&self.tally),
                Arc::clone(&self.ended),
                numbers,
            ))],
        }
    }

    fn routes(&self, _: &Arc<Shell>) -> Vec<Route> {
        let adding = Adding {
            tally: Arc::clone(&self.tally),
            numbers: self.numbers.clone(),
        };
        [
            Route::post("/add", Needs::Write, add_number),
            Route::get("/sum", Needs::Read, sum),
            Route::get("/wait", Needs::Read, wait),
            Route::get("/panic", Needs::Read, panics),
        ]
        .into_iter()
        .map(|route| route.with_state(adding.clone()))
        .collect()
    }

    /// It is ready once something was added.
    fn ready(&self) -> Result<Map<String, Value>, ErrorAnswer> {
        match self.tally.added.get() {
            0 => Err(ErrorAnswer::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "E_EMPTY",
                "nothing was added yet",
            )),
            added => Ok(Map::from_iter([("added".to_owned(), json!(added))])),
        }
    }

    fn requests_ended(&self) {
        self.ended.notify_one();
    }

    fn close(&self) -> Result<(), AdderError> {
        self.tally.closed.store(true, Ordering::SeqCst);
        match self.tally.fails.load(Ordering::SeqCst) {
            true => Err(AdderError("the sum is lost".to_owned())),
            false => Ok(()),
        }
    }
}

async fn add_number(State(adding): State<Adding>, body: String) -> Result<(), ErrorAnswer> {
    let wrong = |_| ErrorAnswer::new(StatusCode::BAD_REQUEST, "E_NUMBER", "expected a number");
    let number = body.trim().parse().map_err(wrong)?;
    adding
        .numbers
        .send(number)
        .map_err(|_| ErrorAnswer::internal())
}

async fn sum(State(adding): State<Adding>) -> String {
    adding.tally.sum.load(Ordering::SeqCst).to_string()
}

async fn wait(State(adding): State<Adding>) -> &'static str {
    let go_on = adding.tally.go_on.notified();
    adding.tally.waits.store(true, Ordering::SeqCst);
    go_on.await;
    "waited"
}

async fn panics() {
    panic!("as asked for");
}

/// The worker: adds numbers until no more come, and then those that are still to be added.
async fn add(tally: Arc<Tally>, ended: Arc<Notify>, mut numbers: mpsc::UnboundedReceiver<u64>) {
    let add = |number| {
        assert!(
            !tally.closed.load(Ordering::SeqCst),
            "it works on after its end"
        );
        tally.sum.fetch_add(number, Ordering::SeqCst);
        tally.added.inc();
    };
    loop {
        tokio::select! {
            () = ended.notified() => break,
            number = numbers.recv() => match number {
                Some(number) => add(number),
                None => return,
            },
        }
    }
    // Whoever was answered has its number added.
    numbers.close();
    while let Some(number) = numbers.recv().await {
        add(number);
    }
}

/// The door: tells the sum to whoever connects.
async fn serve_sum(tally: Arc<Tally>, shell: Arc<Shell>, door: TcpListener) -> bool {
    let mut stopping = shell.stopping();
    loop {
        let stopped = async {
            let _ = stopping.wait_for(|stop| *stop).await;
        };
        let mut stream = tokio::select! {
            () = stopped => return true,
            taken = door.accept() => taken.unwrap().0,
        };
        assert!(
            !tally.listener_panics.load(Ordering::SeqCst),
            "as asked for"
        );
        let sum = tally.sum.load(Ordering::SeqCst);
        let told = format!("{sum}\n");
        stream.write_all(told.as_bytes()).await.unwrap();
    }
}
