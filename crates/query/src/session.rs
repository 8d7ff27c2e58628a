//! A database for SQL, and its sessions.
//!
//! Invariants: a statement reads one snapshot, taken at its start; only the kinds of statements in
//! [`crate::statement`] are run; the session's [`Access`] alone decides what it may see.
//! Concurrency: a session may run several statements at once; each has its own memory, deadline and
//! cancellation.

use crate::answer::{self, Answer, Limited, Outcome, too_slow};
use crate::asof::{self, PlanAsOf};
use crate::catalog::{CATALOG, Catalog, Catalogs, SCHEMA};
use crate::complexity;
use crate::error::{Code, Error, Result, nearest};
use crate::extension::Extension;
use crate::gapfill::{self, FillGaps};
use crate::guards::{self, GuardRule, MayGoOn};
use crate::limits::{AllMemory, Limits, StatementMemory};
use crate::nodes;
use crate::parameters::Parameters;
use crate::pattern::{self, FilterPartitions};
use crate::plan_cache::{PlanCache, PlanKey};
use crate::planner::{self, Planners, Simple};
use crate::pyramid::UsePyramid;
use crate::rewrites::names;
use crate::rules::arguments::Arguments;
use crate::rules::distinct_order::DistinctOrder;
use crate::rules::epoch_bins::EpochBins;
use crate::rules::hex_texts::HexTexts;
use crate::rules::lengths::Lengths;
use crate::rules::lists::ListsApart;
use crate::rules::numbers::Numbers;
use crate::rules::order_once::OrderOnce;
use crate::rules::semi_joins::KeysOnce;
use crate::rules::text_forms::TextForms;
use crate::rules::time_texts::TimeTexts;
use crate::rules::truths::{ComparedTruths, Truths};
use crate::settings::Settings;
use crate::source::{Snapshots, Source};
use crate::stop::Stop;
use crate::table::NewestOfMany;
use crate::view::{Role, TableCache, View};
use crate::zones::{self, CompareInZone, InZone};
use arrow::datatypes::{DataType, Schema, SchemaRef};
use datafusion::common::ScalarValue;
use datafusion::common::tree_node::TreeNode;
use datafusion::execution::TaskContext;
use datafusion::execution::context::SessionState;
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use datafusion::execution::session_state::SessionStateBuilder;
use datafusion::logical_expr::LogicalPlan;
use datafusion::optimizer::{Analyzer, AnalyzerRule, Optimizer, OptimizerRule};
use datafusion::physical_optimizer::optimizer::PhysicalOptimizer;
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use datafusion::prelude::SessionConfig;
use datafusion::sql::parser::Statement;
use headwater::{Database, Reader};
use headwater_ask::Access;
use parking_lot::RwLock;
use std::collections::HashMap;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use tokio::time::Instant;

/// A database for SQL. Cheap to clone; make one per database.
#[derive(Clone)]
pub struct Query {
    pub(crate) shared: Arc<Shared>,
    /// Snapshots that are read instead of those of the source.
    snapshots: Option<Arc<dyn Snapshots>>,
}

pub(crate) struct Shared {
    source: Source,
    pub(crate) limits: Limits,
    memory: Arc<AllMemory>,
    tables: Arc<TableCache>,
    plans: PlanCache,
    planners: Planners,
    /// Template of every statement's state.
    state: SessionState,
    simple: Simple,
}

/// Kinds of columns of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnKind {
    /// The timestamp.
    Time,
    /// A tag.
    Tag,
    /// A field.
    Field,
}

/// A column, as a session sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnDescription {
    /// Name of the column.
    pub name: String,
    /// Kind of the column.
    pub kind: ColumnKind,
    /// Type of the column.
    pub data_type: DataType,
}

/// A table, as a session sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableDescription {
    /// Name of the table.
    pub name: String,
    /// Columns of the table: time, tags, fields.
    pub columns: Vec<ColumnDescription>,
}

impl fmt::Debug for Query {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Query")
            .field("limits", &self.shared.limits)
            .field("memory_bytes", &self.memory_bytes())
            .finish_non_exhaustive()
    }
}

impl Query {
    /// Statements over a database, which they may change as far as their session's [`Access`]
    /// permits.
    #[must_use]
    pub fn new(db: Database, limits: Limits) -> Query {
        Query::over(Source::Database(db), limits)
    }

    /// Statements over a database that another process owns: changes are refused with `read_only`.
    #[must_use]
    pub fn read_only(reader: Reader, limits: Limits) -> Query {
        Query::over(Source::Reader(reader), limits)
    }

    /// Statements that read snapshots of `snapshots`, and may change a database that is part of it.
    #[must_use]
    pub fn across(db: Database, snapshots: Arc<dyn Snapshots>, limits: Limits) -> Query {
        Query::over(Source::Across(db, snapshots), limits)
    }

    fn over(source: Source, limits: Limits) -> Query {
        let state = base_state(&limits);
        Query {
            snapshots: None,
            shared: Arc::new(Shared {
                source,
                memory: Arc::new(AllMemory::new(limits.all_memory)),
                plans: PlanCache::new(limits.plans),
                planners: Planners::new(),
                tables: Arc::new(TableCache::new(limits.names)),
                limits,
                simple: Simple::of(state.optimizer()),
                state,
            }),
        }
    }

    /// The same database, with its caches, whose statements read these snapshots.
    #[must_use]
    pub fn with_snapshots(mut self, snapshots: Arc<dyn Snapshots>) -> Query {
        self.snapshots = Some(snapshots);
        self
    }

    /// Opens a session. All statements of one text, or of one connection, belong to one session, so
    /// that settings persist.
    #[must_use]
    pub fn session(&self, access: Arc<dyn Access>) -> Session {
        Session {
            query: self.clone(),
            access,
            extension: None,
            settings: Arc::new(RwLock::new(Settings::default())),
        }
    }

    /// Opens a session with an extension.
    #[must_use]
    pub fn session_with(&self, access: Arc<dyn Access>, extension: Arc<dyn Extension>) -> Session {
        Session {
            extension: Some(extension),
            ..self.session(access)
        }
    }

    /// Bytes that running statements have reserved.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.shared.memory.used()
    }

    /// Number of cached plans.
    #[must_use]
    pub fn plans(&self) -> usize {
        self.shared.plans.len()
    }

    /// Number of stream names in memory for statements and their tables: now, and the maximum since
    /// the start. For a table with more streams than [`Limits::names`] only pages are in memory.
    #[must_use]
    pub fn names_loaded(&self) -> (usize, usize) {
        self.shared.tables.names().counted()
    }

    /// The tables with their columns, by name, as far as this access permits.
    ///
    /// # Errors
    /// When the database is closed or its catalog cannot be read.
    pub fn tables(&self, access: &Arc<dyn Access>) -> Result<Vec<TableDescription>> {
        let view = self.view(Arc::clone(access))?;
        view.snapshot().require_whole()?;
        let mut tables = Vec::new();
        for name in view.table_names()? {
            let Some(table) = view.table(&name)? else {
                continue;
            };
            let columns = table.schema.fields().iter().zip(&table.roles);
            let columns = columns.map(|(field, role)| ColumnDescription {
                name: field.name().clone(),
                kind: match role {
                    Role::Time => ColumnKind::Time,
                    Role::Tag(_) => ColumnKind::Tag,
                    Role::Field(_) => ColumnKind::Field,
                },
                data_type: field.data_type().clone(),
            });
            tables.push(TableDescription {
                columns: columns.collect(),
                name,
            });
        }
        Ok(tables)
    }

    /// Source of the data.
    pub(crate) fn source(&self) -> &Source {
        &self.shared.source
    }

    fn view(&self, access: Arc<dyn Access>) -> Result<View> {
        let given = self.snapshots.as_ref().map(|given| given.snapshot());
        let snapshot = given.unwrap_or_else(|| self.source().snapshot())?;
        let own = self.clone();
        let past = Arc::new(move |name: &str| own.source().snapshot_named(name));
        let view = View::new(snapshot, access, Arc::clone(&self.shared.tables));
        Ok(view.with_past(past))
    }

    /// The database, for statements that change it.
    pub(crate) fn database(&self) -> Result<&Database> {
        self.source().database()
    }
}

/// The logical optimizer: the library's rules, and this crate's among them.
fn optimizer() -> Vec<Arc<dyn OptimizerRule + Send + Sync>> {
    let mut optimizer: Vec<Arc<dyn OptimizerRule + Send + Sync>> = Vec::new();
    for rule in Optimizer::new().rules {
        if rule.name() == "simplify_expressions" {
            optimizer.push(Arc::new(ListsApart));
        }
        let filters = rule.name() == "push_down_filter";
        optimizer.push(rule);
        if filters {
            optimizer.push(Arc::new(FilterPartitions));
        }
    }
    optimizer.push(Arc::new(KeysOnce));
    optimizer.push(Arc::new(UsePyramid));
    optimizer.push(Arc::new(GuardRule));
    optimizer
}

fn base_state(limits: &Limits) -> SessionState {
    let mut config = SessionConfig::new()
        .with_default_catalog_and_schema(CATALOG, SCHEMA)
        .with_create_default_catalog_and_schema(false)
        .with_information_schema(true)
        .with_target_partitions(limits.parallel.max(1));
    let options = config.options_mut();
    options.sql_parser.collect_spans = true;
    options.sql_parser.map_string_types_to_utf8view = false;
    options.execution.time_zone = Some("+00:00".to_owned());
    // This option fails on groups without a value, and orders NaN by bits.
    options.optimizer.enable_topk_aggregation = false;
    // Another check finds columns that may be absent where no row depends on them.
    options.execution.skip_physical_aggregate_schema_check = true;
    let runtime = Arc::new(RuntimeEnv::default());
    // Before type coercion of comparisons.
    let mut rules: Vec<Arc<dyn AnalyzerRule + Send + Sync>> = vec![
        Arc::new(MayGoOn),
        Arc::new(OrderOnce),
        Arc::new(Lengths),
        Arc::new(EpochBins),
        Arc::new(CompareInZone),
        Arc::new(Truths),
        Arc::new(Arguments),
    ];
    rules.extend(Analyzer::new().rules);
    rules.push(Arc::new(FillGaps {
        time_bucket: crate::functions::time_bucket(zones::ZONE_FUNCTIONS),
    }));
    rules.push(Arc::new(PlanAsOf));
    rules.push(Arc::new(DistinctOrder));
    rules.push(Arc::new(HexTexts));
    rules.push(Arc::new(TimeTexts));
    rules.push(Arc::new(Numbers));
    rules.push(Arc::new(InZone));
    rules.push(Arc::new(TextForms));
    rules.push(Arc::new(GuardRule));
    let optimizer = optimizer();
    let mut physical = PhysicalOptimizer::new().rules;
    physical.push(Arc::new(NewestOfMany));
    let mut builder = SessionStateBuilder::new_with_default_features()
        .with_config(config)
        .with_runtime_env(runtime)
        .with_query_planner(Arc::new(nodes::Planner))
        .with_relation_planners(vec![Arc::new(pattern::Clauses)])
        .with_analyzer_rules(planner::analyzer_rules(rules))
        .with_optimizer_rules(planner::optimizer_rules(optimizer))
        .with_physical_optimizer_rules(planner::physical_rules(physical));
    // Statements use no files: everything that reads or writes them is removed.
    builder.file_formats().take();
    builder.table_factories().take();
    crate::functions::register(&mut builder);
    let planners = builder.expr_planners().get_or_insert_default();
    planners.insert(0, Arc::new(ComparedTruths));
    let functions = builder.scalar_functions().get_or_insert_default();
    functions.push(zones::timezone());
    functions.push(crate::functions::time_bucket(zones::ZONE_FUNCTIONS));
    functions.extend(gapfill::functions());
    functions.push(asof::nearest());
    guards::register(&mut builder);
    builder.build()
}

/// A session: access and settings. Cheap to clone; clones are the same session.
#[derive(Clone)]
pub struct Session {
    pub(crate) query: Query,
    pub(crate) access: Arc<dyn Access>,
    pub(crate) extension: Option<Arc<dyn Extension>>,
    pub(crate) settings: Arc<RwLock<Settings>>,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("query", &self.query)
            .field("extension", &self.extension)
            .finish_non_exhaustive()
    }
}

/// A statement that is being run.
pub(crate) struct Running {
    pub(crate) view: Arc<View>,
    pub(crate) state: SessionState,
    deadline: Option<(Instant, std::time::Duration)>,
    /// Account and deadline of the statement: all planning runs within its scope.
    pub(crate) guarded: Arc<guards::Statement>,
}

impl Running {
    /// The logical plan of a statement, with its names resolved.
    pub(crate) async fn resolve(&self, statement: Statement) -> Result<LogicalPlan> {
        complexity::measure(&statement, &|table| {
            let table = self.view.table(table).ok().flatten()?;
            Some(table.schema.fields().len() as u64)
        })?;
        planner::check()?;
        let again = match &statement {
            Statement::Statement(inner) if names::may_clash(inner) => Some(inner.clone()),
            _ => None,
        };
        let planned = self.state.statement_to_plan(statement);
        let mut planned = self.guarded.scope(planned).await;
        if planned.as_ref().is_err_and(names::is_clash)
            && let Some(mut inner) = again
        {
            names::keep_apart(&mut inner);
            let apart = self.state.statement_to_plan(Statement::Statement(inner));
            planned = self.guarded.scope(apart).await;
        }
        if let Ok(plan) = &planned {
            planner::limit_expressions(plan)?;
        }
        planned.map_err(|error| {
            let error = Error::from(error);
            // Only objects that the session may see are suggested.
            match (error.kind(), &error.subject, self.view.table_names()) {
                (Code::UnknownTable, Some(wanted), Ok(names)) if error.hint.is_none() => {
                    let names: Vec<&str> = names.iter().map(String::as_str).collect();
                    match nearest(wanted, &names) {
                        Some(near) => error.with_hint(format!("did you mean `{near}`?")),
                        None => error,
                    }
                }
                // The planner suggests any of several equally near names.
                (Code::UnknownFunction, Some(wanted), _) => {
                    let near = self.nearest_function(wanted);
                    Error {
                        hint: near.map(|near| match near == *wanted {
                            // The function exists, but is called in another way.
                            true => format!(
                                "`{near}` is a window function: write {near}(…) OVER (ORDER BY time)"
                            ),
                            false => format!("did you mean `{near}`?"),
                        }),
                        ..error
                    }
                }
                _ => error,
            }
        })
    }
}

impl Running {
    /// The function with the most similar name.
    fn nearest_function(&self, wanted: &str) -> Option<String> {
        let state = &self.state;
        let scalar = state.scalar_functions().keys();
        let others = state.aggregate_functions().keys();
        let names = scalar.chain(others).chain(state.window_functions().keys());
        let names: Vec<&str> = names.map(String::as_str).collect();
        nearest(wanted, &names).map(str::to_owned)
    }
}

impl Session {
    /// Parses or plans on a thread that may block.
    ///
    /// Futures of planning are large, and the tasks that wait for them have small stacks: `work` is
    /// moved to the heap at once.
    pub(crate) fn planned<T: Send + 'static>(
        &self,
        large: bool,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> impl Future<Output = Result<T>> + Send {
        let work: Pin<Box<dyn Future<Output = Result<T>> + Send>> = Box::pin(work);
        let shared = &self.query.shared;
        shared.planners.run(shared.limits.time, large, work)
    }

    /// Plans synchronously, see [`Planners::at_once`].
    pub(crate) fn planned_at_once<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.query.shared.planners.at_once(work)
    }

    /// A note of the database.
    pub(crate) fn note(&self, name: &str) -> Result<Option<Vec<u8>>> {
        self.query.source().note(name)
    }

    /// The session's current view of the database.
    pub(crate) fn view(&self) -> Result<View> {
        let view = self.query.view(Arc::clone(&self.access))?;
        let allows = self.extension.as_ref().map(|own| own.allows_partial());
        Ok(match allows {
            Some(true) => view.without_unreadable(),
            _ => view,
        })
    }

    /// The cache of plans and parsed statements of all sessions.
    pub(crate) fn cached_plans(&self) -> &PlanCache {
        &self.query.shared.plans
    }

    /// Runs a statement with the cached plan of an earlier run.
    pub(crate) fn run_again(
        &self,
        view: &Arc<View>,
        sql: &str,
        parameters: &Parameters,
    ) -> Result<Option<Answer>> {
        let key = self.plan_key(sql, view);
        let Some(key) = key.and_then(|key| key.with_parameters(parameters.values())) else {
            return Ok(None);
        };
        match self.query.shared.plans.get(&key) {
            None => Ok(None),
            Some(plan) => self
                .rows(&self.begin_with(Arc::clone(view))?, plan, Outcome::Select)
                .map(Some),
        }
    }

    pub(crate) fn plan_key(&self, sql: &str, view: &View) -> Option<PlanKey> {
        let extension = match &self.extension {
            None => None,
            Some(extension) => Some(extension.shared()?),
        };
        let settings = self.settings_now();
        PlanKey::new(
            sql,
            view.shared_key(),
            extension,
            &settings,
            view.snapshot().definitions(),
        )
    }

    /// The settings, with those that the front end stores.
    pub(crate) fn settings_now(&self) -> Settings {
        let mut settings = self.settings.read().clone();
        if let Some(zone) = self.extension.as_ref().and_then(|own| own.zone()) {
            settings.zone = zone;
        }
        if let Some(used) = self.extension.as_ref().and_then(|own| own.uses_pyramid()) {
            settings.use_pyramid = used;
        }
        settings
    }

    /// Caches the plan of a statement that reads.
    pub(crate) fn cache_plan(
        &self,
        sql: &str,
        parameters: &[ScalarValue],
        running: &Running,
        plan: &Arc<dyn ExecutionPlan>,
    ) {
        let key = self.plan_key(sql, &running.view);
        if let Some(key) = key.and_then(|key| key.with_parameters(parameters)) {
            self.query.shared.plans.put(key, plan);
        }
    }

    pub(crate) fn check_length(&self, sql: &str) -> Result<()> {
        let most = self.query.shared.limits.text_bytes;
        if sql.len() > most {
            return Err(Error::too_large(format!(
                "the statement has {} bytes, at most {most} are allowed",
                sql.len()
            )));
        }
        Ok(())
    }

    /// A new view of the database, with a planner state over it.
    pub(crate) fn begin(&self) -> Result<Running> {
        self.begin_with(Arc::new(self.view()?))
    }

    pub(crate) fn begin_with(&self, view: Arc<View>) -> Result<Running> {
        let shared = &self.query.shared;
        let mut state = shared.state.clone();
        let mut schemas = Vec::new();
        let settings = self.settings_now();
        settings.apply(state.config_mut().options_mut());
        if let Some(extension) = &self.extension {
            schemas = extension.schemas();
            if schemas.iter().any(|(name, _)| name == "information_schema") {
                state.config_mut().options_mut().catalog.information_schema = false;
            }
            for function in extension.functions() {
                use datafusion::execution::FunctionRegistry;
                state.register_udf(guards::guarded(function))?;
            }
        }
        let catalog = Arc::new(Catalog::new(Arc::clone(&view), schemas));
        state.register_catalog_list(Arc::new(Catalogs(catalog)));
        let config = std::mem::take(state.config_mut());
        *state.config_mut() = config
            .with_extension(Arc::clone(&view))
            .with_extension(Arc::new(settings));
        state.mark_start_execution();
        let time = shared.limits.time;
        let deadline = time.map(|limit| (Instant::now() + limit, limit));
        let memory = Arc::clone(&shared.memory);
        Ok(Running {
            view,
            state,
            deadline,
            guarded: guards::Statement::new(deadline, shared.limits.memory, memory),
        })
    }

    /// The rows of a plan, under the limits of the session.
    pub(crate) fn rows(
        &self,
        running: &Running,
        plan: Arc<dyn ExecutionPlan>,
        outcome: Outcome,
    ) -> Result<Answer> {
        let schema = plan.schema();
        let renamed = names::without_marks(&schema);
        let plan = Stop::new(&running.guarded).guard(plan)?;
        let context = Arc::new(self.context(running, &plan)?);
        let rows = execute_stream(plan, context)?;
        let rows = match &renamed {
            None => rows,
            Some(renamed) => answer::with_names(rows, Arc::clone(renamed)),
        };
        let limited = Limited::new(rows, running.deadline, self.query.shared.limits.rows, None);
        Ok(Answer {
            schema: renamed.unwrap_or(schema),
            rows: Box::pin(limited),
            outcome,
            left_out: running.view.left_out().clone(),
        })
    }

    /// Context of a statement's computation: its own memory, no files.
    fn context(&self, running: &Running, plan: &Arc<dyn ExecutionPlan>) -> Result<TaskContext> {
        let shared = &self.query.shared;
        let memory = StatementMemory::new(shared.limits.memory, Arc::clone(&shared.memory));
        let runtime = RuntimeEnvBuilder::new()
            .with_memory_pool(Arc::new(memory))
            .with_disk_manager_builder(
                datafusion::execution::disk_manager::DiskManagerBuilder::default()
                    .with_mode(datafusion::execution::disk_manager::DiskManagerMode::Disabled),
            )
            .build_arc()?;
        let state = &running.state;
        let config = state.config().clone();
        let config = config.with_batch_size(guards::batch_rows(plan));
        // Planned expressions have resolved functions. Only the catalog, which lists them, needs
        // all of them, and copying them takes longer than a small statement.
        let reads_catalog = plan.exists(|part| Ok(part.name() == "StreamingTableExec"))?;
        if reads_catalog {
            // The lists of the catalog cannot say that a copy which cannot be read has more tables.
            running.view.snapshot().require_whole()?;
            let context = TaskContext::from(state).with_runtime(runtime);
            return Ok(context.with_session_config(config));
        }
        Ok(TaskContext::new(
            None,
            state.session_id().to_owned(),
            config,
            HashMap::new(),
            HashMap::new(),
            HashMap::new(),
            HashMap::new(),
            runtime,
        ))
    }

    /// The optimized logical plan.
    pub(crate) fn optimize(&self, running: &Running, plan: &LogicalPlan) -> Result<LogicalPlan> {
        let simple = &self.query.shared.simple;
        let state = &running.state;
        Ok(running.guarded.plan(|| simple.optimize(state, plan))?)
    }

    /// Plans a statement that reads.
    pub(crate) async fn plan(
        &self,
        running: &Running,
        logical: LogicalPlan,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let (state, guarded) = (&running.state, &running.guarded);
        let planned = async {
            let optimized = self.optimize(running, &logical)?;
            // The rows of VALUES are computed here: they are not constants of a plan.
            let planner = state.query_planner();
            let physical = planner.create_physical_plan(&optimized, state);
            guarded.work(physical).await
        };
        Ok(match running.deadline {
            None => planned.await?,
            Some((at, limit)) => tokio::time::timeout_at(at, planned)
                .await
                .map_err(|_| too_slow(limit))??,
        })
    }
}

/// The columns of an answer without rows.
pub(crate) fn no_columns() -> SchemaRef {
    Arc::new(Schema::empty())
}
