//! `headwater bucket`: what clouds keep in a bucket.

use crate::failure::Failure;
use crate::output::{print, print_json};
use clap::{Args, Subcommand, ValueEnum};
use headwater_bucket::{
    Address, BucketError, BucketErrorKind, Collector, Contents, Counted, Env, Head, ObjectStore,
    carry_out, open_store, packs_prefix, read_group,
};
use serde_json::{Value, json};
use std::fmt::Write;
use std::sync::Arc;

/// Show, verify or collect the copies that clouds store in a bucket (serve --cloud-bucket)
#[derive(Debug, Args)]
#[command(after_help = "\
BUCKET is the setting `cloud.bucket` of the clouds: s3://BUCKET/PREFIX, with ?endpoint=URL&region=NAME&style=path|host where
needed, or file:///DIRECTORY. Keys come from the environment: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN.
All three work while clouds run. See docs/cloud/bucket.md.

Examples:
  headwater bucket status  's3://plants/north?endpoint=http://127.0.0.1:9000'
  headwater bucket verify  file:///srv/bucket --format json
  headwater bucket collect s3://plants/north")]
pub(crate) struct Bucket {
    #[command(subcommand)]
    command: BucketCommand,
}

#[derive(Debug, Subcommand)]
enum BucketCommand {
    /// Show the node that holds the lease of the group of copies, and the state of each copy
    Status(BucketArgs),
    /// Read all objects and compare them with their checksums; exit code 1 when one is damaged
    Verify(BucketArgs),
    /// Remove packs that are no longer referenced
    Collect(BucketArgs),
}

/// Format of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum OutputFormat {
    // Lines, for reading
    Text,
    // JSON, for programs
    Json,
}

#[derive(Debug, Args)]
struct BucketArgs {
    /// The bucket
    #[arg(value_name = "BUCKET")]
    bucket: String,

    /// Group of copies
    #[arg(long, value_name = "N", default_value_t = 0)]
    group: u32,

    /// Format of the output
    #[arg(long, value_enum, default_value_t = OutputFormat::Text)]
    format: OutputFormat,
}

type Store = Counted<Arc<dyn ObjectStore>>;

impl Bucket {
    pub(crate) fn run(self) -> Result<(), Failure> {
        match self.command {
            BucketCommand::Status(args) => args.status(),
            BucketCommand::Verify(args) => args.verify(),
            BucketCommand::Collect(args) => args.collect(),
        }
    }
}

fn failed(error: &BucketError) -> Failure {
    let text = format!("{error} ({})", error.kind().code());
    match error.kind() {
        BucketErrorKind::Invalid => Failure::usage(text),
        _ => Failure::failed(text),
    }
}

impl BucketArgs {
    fn open(&self) -> Result<Store, Failure> {
        let address: Address = self.bucket.parse().map_err(|e| failed(&e))?;
        let clock = Env::system().clock;
        let variable = |name: &str| std::env::var(name).ok();
        let store = open_store(&address, &variable, Arc::clone(&clock));
        Ok(Counted::new(store.map_err(|e| failed(&e))?, clock))
    }

    fn read(&self, store: &Store) -> Result<(Head, Contents), Failure> {
        let found = read_group(store, self.group).map_err(|e| failed(&e))?;
        let (head, _, contents) = found.ok_or_else(|| {
            Failure::failed(format!(
                "{}: the bucket has no group {}; is it that of the setting `cloud.bucket`?",
                self.bucket, self.group
            ))
        })?;
        Ok((head, contents))
    }

    fn show(&self, json: &Value, text: &str) -> Result<(), Failure> {
        match self.format {
            OutputFormat::Text => print(text),
            OutputFormat::Json => print_json(json),
        }
    }

    fn status(&self) -> Result<(), Failure> {
        let store = self.open()?;
        let (head, _) = self.read(&store)?;
        let bytes: u64 = head.packs.iter().map(|pack| pack.bytes).sum();
        let until = head.lease.until.as_nanos();
        let copies = head.copies.iter().filter(|(name, _)| is_edge(name));
        let of = |(name, copy): (&String, &headwater_bucket::CopyEntry)| json!({ "edge": name, "state": copy.state, "bytes": copy.bytes });
        let held = (head.lease.millis > 0).then(|| head.lease.name.clone());
        let json = json!({
            "group": head.group, "commit": head.commit, "epoch": head.epoch,
            "min_epoch": head.min_epoch, "node": held, "lease_until_ns": until,
            "packs": head.packs.len(), "bytes": bytes,
            "copies": copies.clone().map(of).collect::<Vec<_>>(),
            "requests": requests(&store),
        });
        let mut text = String::new();
        let node = held.unwrap_or_else(|| "nobody".to_owned());
        line(
            &mut text,
            format_args!(
                "group {}, epoch {}, commit {}",
                head.group, head.epoch, head.commit
            ),
        );
        line(&mut text, format_args!("held by {node}"));
        line(
            &mut text,
            format_args!("{} packs, {bytes} bytes", head.packs.len()),
        );
        for (name, copy) in copies {
            line(
                &mut text,
                format_args!("{name}: state {}, {} bytes", copy.state, copy.bytes),
            );
        }
        self.show(&json, &text)
    }

    fn verify(&self) -> Result<(), Failure> {
        let store = self.open()?;
        let (head, contents) = self.read(&store)?;
        let (mut copies, mut bytes, mut wrong) = (0_u64, 0_u64, Vec::new());
        for name in contents.names() {
            let mut each = |range: headwater_bucket::Range, _: &[u8]| {
                bytes += range.bytes;
                Ok::<(), BucketError>(())
            };
            match contents.restore(&store, &head, name, &mut each) {
                Ok(_) => copies += u64::from(is_edge(name)),
                Err(error) if error.kind() == BucketErrorKind::Superseded => {
                    return Err(Failure::failed(format!(
                        "{error}: the clouds have committed meanwhile; verify again"
                    )));
                }
                Err(error) => wrong.push(format!("{name}: {error}")),
            }
        }
        let json = json!({
            "group": head.group, "commit": head.commit, "copies": copies, "bytes": bytes,
            "wrong": wrong, "requests": requests(&store),
        });
        let mut text = format!("{copies} copies, {bytes} bytes are intact\n");
        for wrong in &wrong {
            line(&mut text, format_args!("wrong: {wrong}"));
        }
        self.show(&json, &text)?;
        match wrong.len() {
            0 => Ok(()),
            count => Err(Failure::failed(format!(
                "{count} objects in the bucket are missing or damaged (E_BUCKET_DAMAGED)"
            ))),
        }
    }

    fn collect(&self) -> Result<(), Failure> {
        let store = self.open()?;
        self.read(&store)?;
        let chance = Env::system().chance;
        let mut collector = Collector::new(self.group, chance);
        while let Some(request) = collector.next_request() {
            collector.take(carry_out(&store, &request));
        }
        let outcome = collector.outcome().ok_or_else(|| {
            Failure::failed(format!(
                "{}: the collection stopped here",
                packs_prefix(self.group)
            ))
        })?;
        let found = outcome.map_err(|e| failed(&e))?;
        let json = json!({
            "group": self.group, "packs": found.packs, "deleted": found.deleted,
            "bytes": found.bytes, "requests": requests(&store),
        });
        let text = format!(
            "{} of {} packs deleted, {} bytes\n",
            found.deleted, found.packs, found.bytes
        );
        self.show(&json, &text)
    }
}

/// The list of edges lies among their copies.
fn is_edge(name: &str) -> bool {
    name != headwater_cluster::bucket::ROSTER
}

fn line(text: &mut String, what: std::fmt::Arguments<'_>) {
    // Writing into memory does not fail.
    let _ = writeln!(text, "{what}");
}

fn requests(store: &Store) -> Value {
    let asked = store.total();
    json!({
        "get": asked.get.requests, "put": asked.put.requests,
        "list": asked.list.requests, "delete": asked.delete.requests,
        "bytes": asked.get.bytes + asked.put.bytes,
    })
}
