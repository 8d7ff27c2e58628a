//! Reads a database without owning it.

use crate::core::Core;
use crate::core::policy_choice::late_report;
use crate::device::layout::meta_path;
use crate::device::tiers::located;
use crate::metadata::tables::Meta;
use crate::metadata::tables::copy::look;
use crate::open::recover::{
    Devices, LogPlan, Opening, OpeningPlan, Recovery, Role, SegmentAccess, SegmentPlan, assemble,
};
use crate::read::Snapshot;
use crate::storage::queues::with_backend;
use crate::wal::Access;
use crate::{Options, Result, Stats, TableInfo};
use headwater_io::Env;
use parking_lot::RwLock;
use std::sync::Arc;

/// A database opened to read only, also while another process owns it. A reader takes no lock and
/// changes no file.
///
/// Its view is one state of the database: all writes acknowledged (with `Durability::Synced`)
/// before it was opened or refreshed, and perhaps writes that were in progress then. After a power
/// cut of the machine such a write may turn out not to have happened. Segment files stay open, up
/// to [`Options::open_files_max`], so that the owner can replace them; a read that needs a replaced
/// one beyond that number fails with `busy`. Cheap to clone; clones share the view.
#[derive(Clone, Debug)]
pub struct Reader {
    inner: Arc<Inner>,
}

struct Inner {
    look: OpenNewest,
    core: RwLock<Arc<Core>>,
}

/// Opens the newest visible state.
type OpenNewest = Box<dyn Fn() -> Result<Core> + Send + Sync>;

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inner")
            .field("core", &self.core)
            .finish_non_exhaustive()
    }
}

/// Opens a state of a database that may have an owner.
pub(crate) fn open_core(env: &Env, options: &Options) -> Result<(Core, Recovery)> {
    options.validate()?;
    let path = meta_path(&options.dir);
    look(env, &options.dir, |meta, copy| {
        // At each attempt: the owner may have moved the log since the last one.
        let env = &located(env, &options.dir)?;
        // Log files are freed after a commit: without a commit in between, all needed files still
        // exist.
        let nothing_freed = || copy.check_current(&**env.index_files(), &path);
        assemble(plan(env, options, meta, &nothing_freed))
    })
}

/// Plans the opening beside an owner; `nothing_freed` fails if files may have been freed since the
/// metadata were read.
fn plan<'a>(
    env: &Env,
    options: &Options,
    meta: Meta,
    nothing_freed: &'a dyn Fn() -> Result<()>,
) -> OpeningPlan<'a> {
    OpeningPlan {
        opening: Opening {
            meta: Arc::new(meta),
            devices: Devices::not_owned(env, &options.dir),
            role: Role::Reader,
            env: env.clone(),
            options: options.clone(),
        },
        segments: SegmentPlan::full(SegmentAccess::StayOpen),
        log: LogPlan::Log(Access::Reader(nothing_freed)),
        hashers: None,
        moment: None,
    }
}

impl Reader {
    /// Opens the database in a directory of this machine, which must exist.
    ///
    /// ```
    /// use headwater_engine::{Database, Options, Reader};
    /// use headwater_types::{Batch, StreamName};
    /// let dir = tempfile::tempdir().unwrap();
    /// let owner = Database::open(Options::new(dir.path()))?;
    /// let engine = StreamName::new("engine", [("id", "7")]);
    /// let mut batch = Batch::new();
    /// batch.stream(&engine).row(1, [("rpm", 2150.0.into())]).unwrap();
    /// owner.commit(batch)?;
    /// let reader = Reader::open(Options::new(dir.path()))?;
    /// assert_eq!(reader.snapshot().last(&engine)?.len(), 1);
    /// # Ok::<(), headwater_engine::Error>(())
    /// ```
    ///
    /// # Errors
    /// `not_found` when there is no database, `corrupt` when files are damaged, `busy` when its
    /// owner changes it too fast to be read, `invalid` for bad settings, `io`.
    pub fn open(options: Options) -> Result<Reader> {
        Reader::open_in(Env::system(), options)
    }

    /// Opens like [`Reader::open`], in another environment.
    ///
    /// # Errors
    /// As [`Reader::open`].
    pub fn open_in(env: Env, options: Options) -> Result<Reader> {
        let env = with_backend(env, &options);
        Reader::looking(Box::new(move || Ok(open_core(&env, &options)?.0)))
    }

    /// A reader of the states that `look` opens.
    pub(crate) fn looking(look: OpenNewest) -> Result<Reader> {
        let core = RwLock::new(Arc::new(look()?));
        Ok(Reader {
            inner: Arc::new(Inner { look, core }),
        })
    }

    pub(crate) fn core(&self) -> Arc<Core> {
        Arc::clone(&self.inner.core.read())
    }

    /// Refreshes: later snapshots see the present database. Earlier snapshots do not change. When
    /// this fails, the previous view stays.
    ///
    /// # Errors
    /// As [`Reader::open`].
    pub fn refresh(&self) -> Result<()> {
        let mut core = (self.inner.look)()?;
        let mut seen = self.inner.core.write();
        // Memory of replays of earlier states continues to count.
        core.replays = Arc::clone(&seen.replays);
        // Programs that prepared something for the tables of the old view must see a different
        // change number.
        core.catalog.come_after(seen.catalog.changes());
        *seen = Arc::new(core);
        Ok(())
    }

    /// Snapshot of the state of the last refresh.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::open(self.core())
    }

    /// The tables.
    #[must_use]
    pub fn tables(&self) -> Vec<TableInfo> {
        let core = self.core();
        let tables = core.catalog.tables();
        tables.iter().map(|t| core.catalog.table_info(t)).collect()
    }

    /// Statistics of late events, as of the owner's last job: see [`crate::Database::late`].
    #[must_use]
    pub fn late(&self) -> crate::LateReport {
        late_report(&self.core())
    }

    /// Counters and sizes. Work of the owner since its last job is not counted.
    ///
    /// # Errors
    /// When the metadata of a file cannot be read.
    pub fn stats(&self) -> Result<Stats> {
        Stats::collect(&self.core())
    }
}
