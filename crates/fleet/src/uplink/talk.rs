//! One connection to a cloud, of an edge, or of a node that relays an edge.
//!
//! Invariants, concurrency and failure: as in the uplink.

use super::{ABOUT, LOOK, SEND_MAX, Uplink};
use crate::dial::Dialled;
use crate::error::FleetError;
use crate::frame::{Note, Received, message, note, received};
use crate::session::SILENT_MAX;
use crate::status::UplinkState;
use crate::uplink_file::UplinkFile;
use crate::waiting::{blocking, stopped};
use futures_util::{SinkExt, StreamExt};
use headwater_engine::StateName;
use headwater_protocol::replication::{Message, Verified};
use std::sync::Arc;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use tokio_tungstenite::tungstenite::Message as Frame;

/// State of one connection.
pub(super) struct Talk {
    pub(super) uplink: Arc<Uplink>,
    pub(super) connection: Dialled,
    pub(super) file: UplinkFile,
    /// The state that was last sent to the cloud.
    told: Option<StateName>,
    /// The relay path that was last sent to the cloud.
    path: Vec<u64>,
    pub(super) was_of_use: bool,
    flushed: Instant,
}

impl Talk {
    pub(super) fn new(uplink: &Arc<Uplink>, connection: Dialled, file: &UplinkFile) -> Talk {
        Talk {
            uplink: Arc::clone(uplink),
            connection,
            file: file.clone(),
            told: None,
            path: Vec::new(),
            was_of_use: false,
            flushed: Instant::now(),
        }
    }

    /// Serves until the connection ends; returns the reason.
    pub(super) async fn run(&mut self, stopping: &mut watch::Receiver<bool>) -> String {
        self.path = self.uplink.origin.path();
        if !self.path.is_empty() {
            // Before any other message: the data is another node's.
            let told = note(&Note::path(&self.path));
            if let Err(ended) = self.send(told).await {
                return ended;
            }
        }
        if self.file.begins_anew
            && let Err(ended) = self.send(note(&Note::BeginAnew {})).await
        {
            return ended;
        }
        let mut look = tokio::time::interval(LOOK);
        let mut heard = Instant::now();
        let mut about: Option<Instant> = None;
        loop {
            tokio::select! {
                frame = self.connection.next() => {
                    heard = Instant::now();
                    let taken = match frame {
                        Some(Ok(frame)) => self.take(&frame).await,
                        Some(Err(error)) => Err(error.to_string()),
                        None => Err("the cloud has ended the connection".to_owned()),
                    };
                    if let Err(ended) = taken {
                        return ended;
                    }
                }
                _ = look.tick() => {
                    if heard.elapsed() > SILENT_MAX {
                        return "the cloud is silent".to_owned();
                    }
                    let is_due = about.is_none_or(|at| at.elapsed() >= ABOUT);
                    if is_due {
                        about = Some(Instant::now());
                    }
                    if let Err(ended) = self.look(is_due).await {
                        return ended;
                    }
                }
                () = stopped(stopping) => {
                    let _ = timeout(LOOK, self.connection.close(None)).await;
                    return "this node stops".to_owned();
                }
            }
        }
    }

    async fn send(&mut self, frame: Frame) -> Result<(), String> {
        match timeout(SEND_MAX, self.connection.send(frame)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err("the cloud takes nothing".to_owned()),
        }
    }

    /// Runs a call of the database on a thread that may wait.
    async fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&Uplink) -> Result<T, FleetError> + Send + 'static,
    ) -> Result<T, String> {
        let uplink = Arc::clone(&self.uplink);
        match blocking(move || question(&uplink)).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(error.to_string()),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Checks the file and the database, and queues reports of changes.
    async fn look(&mut self, thorough: bool) -> Result<(), String> {
        let file = UplinkFile::read(&self.uplink.dir).map_err(|e| e.to_string())?;
        if file.as_ref() != Some(&self.file) {
            return Err("what is known of the cloud has changed".to_owned());
        }
        if self.uplink.origin.path() != self.path {
            return Err("what is passed on comes another way now".to_owned());
        }
        if thorough {
            let about = self.ask(Uplink::about).await?;
            self.send(note(&Note::About(about))).await?;
            self.ask(Uplink::free).await?;
            self.send(Frame::Ping(Vec::new().into())).await?;
        }
        if std::mem::take(&mut self.uplink.known.lock().wants_verifying) {
            self.send(note(&Note::Verify {})).await?;
        }
        self.flush_if_due().await?;
        let told = self.told;
        let news = self.ask(move |uplink| uplink.news(told, thorough)).await?;
        if let Some(name) = news {
            self.send(message(&Message::Hello(name))).await?;
            self.told = Some(name);
        }
        for change in self.ask(Uplink::changes).await? {
            self.send(message(&change)).await?;
        }
        if let Some(newest) = self.ask(Uplink::live).await? {
            self.send(message(&newest)).await?;
        }
        Ok(())
    }

    /// Flushes events that have waited in memory for too long, so that the copy receives them.
    async fn flush_if_due(&mut self) -> Result<(), String> {
        let Some(every) = self.uplink.settings.flush_every else {
            return Ok(());
        };
        if self.flushed.elapsed() < every {
            return Ok(());
        }
        self.flushed = Instant::now();
        self.ask(|uplink| uplink.origin.flush()).await
    }

    async fn take(&mut self, frame: &Frame) -> Result<(), String> {
        match received(frame) {
            Received::Message(message) => self.answer(message).await,
            Received::Note(found) => {
                self.take_note(found);
                Ok(())
            }
            Received::Nothing => Ok(()),
            Received::End => Err("the cloud ends the connection".to_owned()),
        }
    }

    fn take_note(&mut self, found: Note) {
        let uplink = &self.uplink;
        match found {
            Note::Welcome { .. } => uplink.stands(UplinkState::Connected, None),
            Note::Survives { .. } => uplink.known.lock().survives = true,
            Note::Refused { text, .. } => uplink.stands(UplinkState::Refused, Some(text)),
            Note::Revoked { list } => uplink.known.lock().revoked = list,
            Note::Verified {
                equal,
                different,
                missing,
            } => {
                let at = uplink.env.clock.now();
                let mut known = uplink.known.lock();
                known.is_verifying = false;
                let found = Verified {
                    equal,
                    different,
                    missing,
                };
                known.verified = Some((at, found));
            }
            // Messages of an edge are never sent to an edge.
            _ => {}
        }
    }

    async fn answer(&mut self, asked: Message) -> Result<(), String> {
        self.was_of_use = true;
        let begins = matches!(asked, Message::AskState { known: None, .. });
        if begins && self.file.begins_anew {
            // The cloud has put its copy aside, and requests a first state.
            let changed = self.uplink.change_file(|file| file.begins_anew = false);
            changed.map_err(|e| e.to_string())?;
            self.file.begins_anew = false;
            self.uplink.known.lock().file = Some(self.file.clone());
            self.uplink.stands(UplinkState::Connected, None);
        }
        let uplink = Arc::clone(&self.uplink);
        let answers = blocking(move || uplink.answer(asked)).await;
        for answer in answers.map_err(|e| e.to_string())?? {
            self.send(message(&answer)).await?;
        }
        Ok(())
    }
}
