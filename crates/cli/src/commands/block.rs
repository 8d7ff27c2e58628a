//! `headwater block`: a block device for other programs.

use crate::arguments::parse_size;
use crate::failure::Failure;
use crate::output::print;
use clap::{Args, ValueEnum};
use headwater::Env;
use headwater_block::{
    Address, BlockError, BlockErrorKind, Device, DeviceOptions, Order, ServeOptions, Server,
};
use std::io::IsTerminal;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::signal::unix::{SignalKind, signal};

/// Serve a block device to other programs by the NBD protocol, until SIGTERM or SIGINT
#[derive(Debug, Args)]
#[command(after_help = "\
The first start creates the device and needs --size; later starts open it as it is: neither its size nor its queue sets can be
changed. What a flush or a write with FUA acknowledged survives a power cut, and no block of 4 KiB is ever torn; every client
that can reach the address may read and write everything. The address is printed on stdout, as clients write it, once the
device is served. SIGTERM and SIGINT store everything and stop it. See docs/block-device.md.")]
pub(crate) struct Block {
    /// Directory of the device's files
    #[arg(long, value_name = "DIR")]
    tier: PathBuf,

    /// Size of the device, a multiple of 4 KiB, such as 8GiB; only a new one needs it
    #[arg(long, value_parser = parse_size)]
    size: Option<usize>,

    /// Queue sets, each with a thread and a file, 1 to 64; 4 for a new device
    #[arg(long, value_name = "N")]
    sets: Option<u32>,

    /// Where to listen: unix:PATH or tcp:127.0.0.1:10809
    #[arg(long, value_name = "ADDRESS")]
    listen: Address,

    /// Name of the export, which is also the default one
    #[arg(long, value_name = "NAME", default_value = "headwater")]
    export: String,

    /// Order in which the waiting requests of a queue set are served
    #[arg(long, value_enum, default_value_t = OrderArg::Reads)]
    first: OrderArg,
}

/// Orders, as the command line has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum OrderArg {
    // Whatever somebody reads, then what is written
    Reads,
    // Whatever is written, then what is read
    Writes,
    // As they come
    Arrival,
}

impl From<OrderArg> for Order {
    fn from(order: OrderArg) -> Order {
        match order {
            OrderArg::Reads => Order::ReadsFirst,
            OrderArg::Writes => Order::WritesFirst,
            OrderArg::Arrival => Order::Arrival,
        }
    }
}

impl Block {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| Failure::failed(format!("cannot wait for signals: {error}")))?;
        runtime.block_on(async {
            let listen = |kind| {
                signal(kind)
                    .map_err(|error| Failure::failed(format!("cannot wait for signals: {error}")))
            };
            // Before the start, so that a signal in its middle is not lost.
            let mut term = listen(SignalKind::terminate())?;
            let mut interrupt = listen(SignalKind::interrupt())?;
            let server = self.start().map_err(failure)?;
            // The parent may have closed stdout.
            let _ = print(&format!("{}\n", server.address().uri()));
            if std::io::stderr().is_terminal() {
                eprintln!("Ctrl-C stops it and stores everything.");
            }
            tokio::select! {
                _ = term.recv() => {}
                _ = interrupt.recv() => {}
            }
            server.stop().map_err(failure)
        })
    }

    fn start(self) -> Result<Server, BlockError> {
        let env = Env::system();
        let mut options = DeviceOptions::new(self.tier);
        options.size = self
            .size
            .map(|size| u64::try_from(size).unwrap_or(u64::MAX));
        options.sets = self.sets;
        options.order = self.first.into();
        let device = Arc::new(Device::open(&env, &options)?);
        let mut serve = ServeOptions::new(self.listen);
        serve.export = self.export;
        Server::start(&env, device, serve)
    }
}

fn failure(error: BlockError) -> Failure {
    match error.kind() {
        BlockErrorKind::Invalid => Failure::usage(error),
        _ => Failure::failed(error),
    }
}
