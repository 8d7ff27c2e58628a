//! Evaluates the watches periodically.
//!
//! Invariants: a watch is evaluated when its table has changed since, when time alone may have
//! changed its matches, and otherwise every [`RECHECK_MAX`]. A batch to another table costs a watch
//! only a comparison of two numbers. Evaluation takes a quarter of the time at most. Concurrency:
//! one task; queries run where statements do. Failure: a panic ends a turn, and another turn
//! starts.

use super::hook::{self, Letter, SENDING_MAX};
use crate::app::App;
use crate::components::watches::registry::{ActiveWatch, Stopped, event_json};
use crate::query_access::QueryAccess;
use headwater_io::{Env, Files};
use headwater_query::{Look, Watch};
use headwater_watch::{Bounds, Change, Definition, Event, Failure, Next, Round};
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;

/// Shortest time between two turns.
const TICK: Duration = Duration::from_millis(200);
/// Longest time between two evaluations of a watch.
const RECHECK_MAX: Duration = Duration::from_secs(10);
/// Pause after a failure.
const AFTER_FAILURE: Duration = Duration::from_secs(2);

/// Evaluates the watches until the server stops.
pub(crate) async fn run(app: Arc<App>) {
    let runner = Arc::new(tokio::sync::Mutex::new(Runner::new(Arc::clone(&app))));
    let mut stopping = app.shell.stopping();
    let mut pause = TICK;
    loop {
        tokio::select! {
            // An error means that the server has stopped.
            _ = stopping.wait_for(|stop| *stop) => return,
            () = tokio::time::sleep(pause) => {}
        }
        let begun = Instant::now();
        let runner = Arc::clone(&runner);
        let turn = tokio::spawn(async move { runner.lock().await.turn().await });
        pause = match turn.await {
            Ok(()) => TICK.max(begun.elapsed() * 3),
            Err(error) => {
                tracing::error!(%error, "evaluating the watches panicked and restarts");
                AFTER_FAILURE
            }
        };
    }
}

/// Progress of a watch in this process.
struct Course {
    look: Look,
    /// Version of the database at the last evaluation.
    evaluated_version: Option<u64>,
    looked: Option<Instant>,
    bounds: Option<Bounds>,
    /// Fingerprint of the last matches, and the time since when it is unchanged.
    last_matches: Option<(u64, Instant)>,
    not_before: Option<Instant>,
}

/// State of the database when a turn began.
struct DatabaseState {
    /// The newest record that everybody sees.
    sequence: u64,
    /// The newest record of each table that a watch is over.
    changes: HashMap<String, u64>,
}

/// Reason for evaluating a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    /// The table of the watch has changed.
    Change,
    /// Time has passed.
    Time,
}

impl Cause {
    fn name(self) -> &'static str {
        match self {
            Cause::Change => "change",
            Cause::Time => "time",
        }
    }
}

struct Runner {
    app: Arc<App>,
    files: Arc<dyn Files>,
    dir: PathBuf,
    courses: HashMap<u64, Course>,
    slots: Arc<Semaphore>,
}

impl Course {
    /// True when the table has not changed for so long that no result can be pending.
    fn is_quiet(&self, lateness_ns: i64) -> bool {
        let Some((bounds, (_, since))) = self.bounds.zip(self.last_matches) else {
            return false;
        };
        let wait_ns = bounds.within_ns.saturating_add(lateness_ns);
        since.elapsed() >= Duration::from_nanos(wait_ns.unsigned_abs())
    }

    /// Reason to evaluate the watch now, if any; `changed` is the newest record of its table.
    fn due(&self, watch: &Watch, changed: u64) -> Option<Cause> {
        let past = |at: Option<Instant>, time: Duration| at.is_none_or(|at| at.elapsed() >= time);
        if self.not_before.is_some_and(|at| at > Instant::now()) {
            return None;
        }
        // A record that is not published yet is detected in the next turn.
        if self.evaluated_version.is_none_or(|seen| changed > seen) {
            return Some(Cause::Change);
        }
        let often = match watch.is_absence() {
            true => Duration::from_secs(1),
            false => RECHECK_MAX,
        };
        let grew_quiet = !watch.is_absence()
            && self.is_quiet(watch.lateness_ns())
            && self
                .last_matches
                .zip(self.looked)
                .is_some_and(|((_, since), looked)| {
                    let bounds = self.bounds.map_or(0, |bounds| bounds.within_ns);
                    let wait = bounds.saturating_add(watch.lateness_ns()).unsigned_abs();
                    looked < since + Duration::from_nanos(wait)
                });
        (past(self.looked, often) || grew_quiet).then_some(Cause::Time)
    }
}

impl Runner {
    fn new(app: Arc<App>) -> Runner {
        Runner {
            files: Env::system().files,
            dir: app.settings.db().join("watches"),
            app,
            courses: HashMap::new(),
            slots: Arc::new(Semaphore::new(SENDING_MAX)),
        }
    }

    async fn turn(&mut self) {
        let known = self.app.blocking(|app| {
            app.shell.guard().refresh();
            let sequence = app.snapshot()?.sequence();
            let definitions = app.sql().query.watches()?;
            let mut changes = HashMap::new();
            for definition in &definitions {
                let table = &definition.table;
                if !changes.contains_key(table) {
                    changes.insert(table.clone(), app.changed_at(table, sequence));
                }
            }
            Ok((definitions, DatabaseState { sequence, changes }))
        });
        let (definitions, seen) = match known.await {
            Ok(known) => known,
            // The database is closing, or a note is damaged: requests report that.
            Err(error) => {
                tracing::debug!(code = error.code, "the list of watches cannot be read");
                return;
            }
        };
        let by_id: HashMap<u64, &Definition> = definitions.iter().map(|d| (d.id, d)).collect();
        let wanted = |followed: &ActiveWatch| {
            let definition = followed.watch().definition();
            by_id.get(&definition.id) == Some(&definition)
        };
        for gone in self.app.watches().retain(wanted) {
            self.courses.remove(&gone.watch().definition().id);
            let removed = tokio::task::spawn_blocking(move || gone.remove()).await;
            if let Ok(Err(error)) = removed {
                tracing::warn!(%error, "the file of a dropped watch cannot be removed");
            }
        }
        for definition in definitions {
            if self.app.watches().get(&definition.name).is_none() {
                self.open(definition).await;
            }
        }
        let mut stopped = 0;
        for followed in self.app.watches().all() {
            if *self.app.shell.stopping().borrow() {
                return;
            }
            self.look(&followed, &seen).await;
            self.deliver(&followed);
            stopped += i64::from(followed.is_stopped());
        }
        self.app.watches().metrics.stopped.set(stopped);
    }

    async fn open(&mut self, definition: Definition) {
        let (files, dir) = (Arc::clone(&self.files), self.dir.clone());
        let id = definition.id;
        let name = definition.name.clone();
        let opened = tokio::task::spawn_blocking(move || {
            let watch = Watch::read(definition).map_err(io::Error::other)?;
            ActiveWatch::open(watch, files, &dir)
        });
        match opened.await {
            Ok(Ok(followed)) => {
                let course = Course {
                    look: Look::default(),
                    evaluated_version: None,
                    looked: None,
                    bounds: None,
                    last_matches: None,
                    not_before: None,
                };
                self.courses.insert(id, course);
                self.app.watches().put(Arc::new(followed));
            }
            Ok(Err(error)) => tracing::error!(watch = name, %error, "a watch cannot be started"),
            Err(error) => tracing::error!(watch = name, %error, "opening a watch panicked"),
        }
    }

    /// Evaluates a watch that is due, and emits its events.
    async fn look(&mut self, followed: &Arc<ActiveWatch>, seen: &DatabaseState) {
        let Definition { id, table, .. } = followed.watch().definition();
        let Some(course) = self.courses.get_mut(id) else {
            return;
        };
        let changed = seen.changes.get(table).copied().unwrap_or(seen.sequence);
        let Some(cause) = course.due(followed.watch(), changed) else {
            return;
        };
        self.app.watches().metrics.looked(cause.name());
        (course.evaluated_version, course.looked) = (Some(seen.sequence), Some(Instant::now()));
        let told = evaluate(&self.app, followed, course).await;
        if told.is_err() {
            course.not_before = Some(Instant::now() + AFTER_FAILURE);
            course.evaluated_version = None;
        }
        followed.stop(told.err());
    }

    /// Sends the next event to the hook or the topic, if the watch has one and the event is due.
    fn deliver(&self, followed: &Arc<ActiveWatch>) {
        let watch = followed.watch();
        if watch.topic().is_none() && watch.hook().is_none() {
            return;
        }
        // A watch that may not read may not emit either; earlier events stay to be sent.
        if owner(&self.app, watch).is_err() {
            return;
        }
        if let Some(topic) = watch.topic() {
            publish(&self.app, followed, topic);
        }
        if watch.hook().is_none() {
            return;
        }
        let Ok(place) = Arc::clone(&self.slots).try_acquire_owned() else {
            return;
        };
        let now_ns = now_ns();
        let Next::Send(event) = followed.next(now_ns) else {
            return;
        };
        if !followed.begin_sending() {
            return;
        }
        let (app, followed) = (Arc::clone(&self.app), Arc::clone(followed));
        tokio::task::spawn_blocking(move || {
            let _place = place;
            let sent = send(&app, &followed, &event, now_ns);
            if let Err(error) = written(&app, &followed, &event, sent) {
                let name = &followed.watch().definition().name;
                tracing::warn!(watch = name, %error, "the outcome of a web hook cannot be stored: the event will be sent again");
            }
            followed.end_sending();
        });
    }
}

fn now_ns() -> i64 {
    crate::request::now().as_nanos()
}

/// Current rights of a watch's owner.
fn owner(app: &App, watch: &Watch) -> Result<QueryAccess, Stopped> {
    let definition = watch.definition();
    let stopped = |message: String| Stopped {
        code: "E_ACCESS".to_owned(),
        message,
    };
    let access = app.shell.guard().access_of(definition.owner.as_deref());
    let Some(access) = access else {
        return Err(stopped(
            "the token that created this watch is no longer valid: drop the watch and create it with another token".to_owned(),
        ));
    };
    let granted = QueryAccess(access);
    let rights = headwater_query::Access::key(&granted);
    if headwater_watch::rights_of(rights.as_deref()) != definition.rights {
        return Err(stopped(
            "the rights of the token that created this watch have changed: drop the watch and create it again".to_owned(),
        ));
    }
    if !granted.0.may_read_some_of(&definition.table) {
        let table = &definition.table;
        return Err(stopped(format!("its owner may not read table `{table}`")));
    }
    Ok(granted)
}

/// Evaluates a watch, and persists its events.
async fn evaluate(
    app: &Arc<App>,
    followed: &Arc<ActiveWatch>,
    course: &mut Course,
) -> Result<(), Stopped> {
    let watch = followed.watch().clone();
    let session = app.sql().query.session(Arc::new(owner(app, &watch)?));
    let begin = followed.with(|kept| kept.state.begin());
    let is_quiet = course.is_quiet(watch.lateness_ns());
    let mut look = std::mem::take(&mut course.look);
    let work = async move {
        let looked = session
            .look(&watch, &begin, now_ns(), is_quiet, &mut look)
            .await;
        (looked, look)
    };
    let of_query = |error: headwater_query::Error| Stopped {
        code: error.code.to_owned(),
        message: match error.hint {
            Some(hint) => format!("{}; {hint}", error.message),
            None => error.message,
        },
    };
    let (looked, look) = app.sql().threads.run(work).await.map_err(of_query)?;
    course.look = look;
    let (bounds, round) = looked.map_err(of_query)?;
    course.bounds = Some(bounds);
    let found = fingerprint(&round);
    if course.last_matches.is_none_or(|(known, _)| known != found) {
        course.last_matches = Some((found, Instant::now()));
    }
    let (app, followed) = (Arc::clone(app), Arc::clone(followed));
    let wrote = tokio::task::spawn_blocking(move || write(&app, &followed, bounds, &round)).await;
    wrote.unwrap_or_else(|error| {
        Err(Stopped {
            code: "E_INTERNAL".to_owned(),
            message: format!("publishing events panicked: {error}"),
        })
    })
}

fn fingerprint(round: &Round) -> u64 {
    let mut hash = DefaultHasher::new();
    (round.watermark_ns, &round.matches).hash(&mut hash);
    hash.finish()
}

fn write(app: &App, followed: &ActiveWatch, bounds: Bounds, round: &Round) -> Result<(), Stopped> {
    let planned = followed.with(|kept| {
        let step = kept.state.step(bounds, round)?;
        let is_worth = kept.state.is_worth(bounds, &step);
        Ok((step, is_worth))
    });
    let (step, is_worth) = planned.map_err(|why: headwater_watch::TooMany| Stopped {
        code: "E_LIMIT".to_owned(),
        message: why.to_string(),
    })?;
    if is_worth {
        let change = Change::Step(step.clone());
        followed.change(&change).map_err(|error| Stopped {
            code: match error.kind() {
                io::ErrorKind::StorageFull => "E_FULL".to_owned(),
                _ => "E_IO".to_owned(),
            },
            message: format!("the events cannot be written and will be retried: {error}"),
        })?;
        for event in &step.events {
            app.watches().metrics.emitted(event.kind.name());
        }
    } else {
        followed.moved(|kept| kept.state.apply(&step));
    }
    Ok(())
}

/// Publishes the waiting events, one after the other, while there is a connection. Without a
/// connection they wait: no event becomes a dead letter.
fn publish(app: &Arc<App>, followed: &Arc<ActiveWatch>, topic: &str) {
    let may = app.settings.watch.topics.iter();
    let may = may
        .into_iter()
        .any(|beginning| topic.starts_with(beginning));
    let waits = matches!(followed.next(now_ns()), Next::Send(_));
    if !may || !waits || !is_connected(app) || !followed.begin_sending() {
        return;
    }
    let (app, followed, topic) = (Arc::clone(app), Arc::clone(followed), topic.to_owned());
    tokio::spawn(async move {
        while let Next::Send(event) = followed.next(now_ns()) {
            let payload = event_json(followed.watch(), &event);
            let may_read = owner(&app, followed.watch()).is_ok();
            if !may_read {
                break;
            }
            let is_published = match app.components.publisher() {
                Some(publisher) => publisher.publish(&topic, payload).await,
                None => false,
            };
            if !is_published {
                let failure = Failure {
                    reason: "the broker has not accepted the event".to_owned(),
                    is_final: false,
                };
                // The event waits for the broker without a time limit, so that no event is
                // abandoned.
                followed.failed(&event, &failure, now_ns());
                break;
            }
            app.watches().metrics.sent("published");
            let own = Arc::clone(&followed);
            let write = move || own.change(&Change::Delivered(event.sequence));
            if !matches!(tokio::task::spawn_blocking(write).await, Ok(Ok(()))) {
                break;
            }
        }
        followed.end_sending();
    });
}

/// True while a broker is connected.
fn is_connected(app: &App) -> bool {
    let publisher = app.components.publisher();
    publisher.is_some_and(|publisher| publisher.is_connected())
}

fn send(app: &App, followed: &ActiveWatch, event: &Event, now_ns: i64) -> Result<(), Failure> {
    let watch = followed.watch();
    let body = event_json(watch, event);
    let letter = Letter {
        url: watch.hook().unwrap_or_default(),
        event,
        watch: watch.definition().id,
        body: &body,
        now_s: now_ns.div_euclid(1_000_000_000),
    };
    hook::send(&app.settings, &letter)
}

/// Persists the outcome of a sent event.
fn written(
    app: &App,
    followed: &ActiveWatch,
    event: &Event,
    sent: Result<(), Failure>,
) -> io::Result<()> {
    match sent {
        Ok(()) => {
            app.watches().metrics.sent("delivered");
            followed.change(&Change::Delivered(event.sequence))
        }
        Err(failure) => {
            app.watches().metrics.sent("failed");
            match followed.failed(event, &failure, now_ns()) {
                None => Ok(()),
                Some(change) => followed.change(&change),
            }
        }
    }
}

/// Sends a dead letter again, at once.
pub(crate) fn retry(app: &App, followed: &ActiveWatch, sequence: u64) -> Result<(), Failure> {
    let dead = followed
        .dead()
        .into_iter()
        .find(|dead| dead.event.sequence == sequence);
    let missing = || Failure {
        reason: format!("there is no dead letter {sequence}"),
        is_final: true,
    };
    let dead = dead.ok_or_else(missing)?;
    let of_owner = |why: Stopped| Failure {
        reason: why.message,
        is_final: true,
    };
    owner(app, followed.watch()).map_err(of_owner)?;
    send(app, followed, &dead.event, now_ns())?;
    app.watches().metrics.sent("delivered");
    followed
        .change(&Change::Buried(sequence))
        .map_err(|why| Failure {
            reason: format!("the event was delivered, but its delivery cannot be recorded: {why}"),
            is_final: false,
        })
}
