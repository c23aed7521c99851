//! The sandbox of a start: from what it asks for, the defaults and the floors to what the kernel enforces.
//!
//! A start without a sandbox, floor and default costs nothing here.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use pinfold_api::error::ErrorCode;
use pinfold_model::sandbox::{
    Enforcement, Floor, Kernel, Looser, NotEnforceable, Profile, Sandbox, SandboxParts, SandboxRequest, UnixSockets,
};
use pinfold_model::spec::Spec;
use pinfold_os::sandbox::{has_filters, landlock_abi, try_namespaces};

use crate::access::caller::Caller;
use crate::access::sandboxed::OWN_SANDBOX;
use crate::config::Paths;
use crate::core::{Core, blocking};
use crate::request_error::RequestError;

/// Where the floor of an owner comes from, in errors.
const CONFIGURED: &str = "the floor in the configuration";

/// Whether namespaces can be created, once it was tried.
static NAMESPACES: OnceLock<bool> = OnceLock::new();

/// What this machine offers to sandboxes. The first call tries namespaces in a child, on a blocking thread.
pub(crate) async fn kernel() -> Result<Kernel, RequestError> {
    let namespaces = match NAMESPACES.get() {
        Some(known) => *known,
        None => blocking(|| *NAMESPACES.get_or_init(|| try_namespaces().is_ok())).await?,
    };
    Ok(Kernel { landlock_abi: landlock_abi(), seccomp: has_filters(), namespaces })
}

/// What a floor says, and where it comes from.
struct Bound {
    floor: Floor,
    source: &'static str,
}

impl Core {
    /// The sandbox that a start gets; `None` without one.
    pub(crate) async fn sandbox_of(
        &self,
        caller: &Caller,
        request: Option<SandboxRequest>,
        spec: &Spec,
    ) -> Result<Option<Enforcement>, RequestError> {
        let config = &self.config.sandbox;
        let inside = caller.principal.sandbox();
        let default = config.default_for(&spec.owner, &spec.ancestors);
        let configured = config.floor_for(&spec.owner, &spec.ancestors);
        if request.is_none() && inside.is_none() && default.is_none() && configured.is_none() {
            return Ok(None);
        }
        let requested = request.map(|request| request.parse(&self.user_home)).transpose()?;
        if let Some(inside) = &inside {
            check_notifications(inside, spec)?;
        }
        let bound = bound(configured, inside.as_ref());
        let chosen = choose(requested, default.cloned(), spec.cwd.clone(), bound, self.own_paths());
        let Some(sandbox) = blocking(chosen).await?? else { return Ok(None) };
        if self.config.trust_children && sandbox.unix == UnixSockets::Any {
            return Err(RequestError::invalid(
                "a sandbox with unix=any is no sandbox while `security.trust_children` is true, because every process may then \
                 act as the operator: leave out unix=any, or change the setting",
            ));
        }
        Ok(Some(sandbox.enforcement(kernel().await?)?))
    }

    /// What no sandboxed process may write: the home and the configuration.
    fn own_paths(&self) -> Vec<PathBuf> {
        vec![self.home.root().to_owned(), Paths::at(self.home.root().to_owned()).config]
    }
}

/// Both floors in one. Errors name the one that is closer to the caller.
fn bound(configured: Option<Floor>, inside: Option<&Sandbox>) -> Option<Bound> {
    match (configured, inside.map(Floor::from)) {
        (Some(floor), None) => Some(Bound { floor, source: CONFIGURED }),
        (None, Some(floor)) => Some(Bound { floor, source: OWN_SANDBOX }),
        (Some(configured), Some(own)) => Some(Bound { floor: own.meet(&configured), source: OWN_SANDBOX }),
        (None, None) => None,
    }
}

/// The daemon sends webhooks itself: from inside a sandbox without a network they would be a way out.
fn check_notifications(inside: &Sandbox, spec: &Spec) -> Result<(), RequestError> {
    let full = inside.network == pinfold_model::sandbox::Network::Full;
    match spec.notify.webhook.is_some() && !full {
        true => Err(RequestError::new(
            ErrorCode::Forbidden,
            "a process whose sandbox has no full network may not start one with a webhook: leave `webhook` out",
        )),
        false => Ok(()),
    }
}

/// Decides on the sandbox, with paths resolved; on a blocking thread, since a file system may be slow.
fn choose(
    requested: Option<SandboxParts>,
    default: Option<SandboxParts>,
    cwd: PathBuf,
    bound: Option<Bound>,
    own_paths: Vec<PathBuf>,
) -> impl FnOnce() -> Result<Option<Sandbox>, RequestError> + Send + 'static {
    move || {
        let cwd = cwd.canonicalize().unwrap_or(cwd);
        let floor = bound.as_ref().map(|bound| &bound.floor);
        let is_requested = requested.is_some();
        let parts = requested.or(default).map(resolve_roots).transpose()?;
        let sandbox = parts.as_ref().and_then(|parts| Sandbox::of(parts, &cwd, floor));
        let sandbox = match (sandbox, bound) {
            (sandbox, None) => sandbox,
            (Some(sandbox), Some(bound)) => match bound.floor.check(&sandbox, bound.source) {
                Ok(()) => Some(sandbox),
                Err(looser) if is_requested => return Err(looser.into()),
                // Only the default is wider than the floor.
                Err(_) => Some(bound.floor.widest(&cwd)),
            },
            (None, Some(bound)) if is_requested => {
                let (part, allowed) = ("profile", "`off` is not allowed".to_owned());
                return Err(Looser { part, allowed, source_of_floor: bound.source }.into());
            }
            (None, Some(bound)) => Some(bound.floor.widest(&cwd)),
        };
        if let Some(sandbox) = &sandbox {
            check_roots(sandbox, &own_paths)?;
        }
        Ok(sandbox)
    }
}

/// Replaces symbolic links in the roots, so that they can be compared.
fn resolve_roots(mut parts: SandboxParts) -> Result<SandboxParts, RequestError> {
    if parts.profile == Profile::Off {
        return Ok(parts);
    }
    for root in &mut parts.write {
        *root = root.canonicalize().map_err(|error| {
            let root = root.display();
            RequestError::invalid(format!("sandbox: write root `{root}`: {error}: create it first, or leave it out"))
        })?;
    }
    Ok(parts)
}

/// Refuses roots through which a process could change pinfold's own state, and with it its sandbox.
fn check_roots(sandbox: &Sandbox, own_paths: &[PathBuf]) -> Result<(), RequestError> {
    let resolved = |path: &PathBuf| path.canonicalize().unwrap_or_else(|_| path.clone());
    for own in own_paths.iter().map(resolved) {
        let overlaps = |root: &&PathBuf| own.starts_with(root) || root.starts_with(&own);
        if let Some(root) = sandbox.write.iter().find(overlaps) {
            return Err(overlapping(root, &own));
        }
    }
    Ok(())
}

fn overlapping(root: &Path, own: &Path) -> RequestError {
    RequestError::invalid(format!(
        "the sandbox would allow writing in `{}`, which holds pinfold's own files (`{}`): use a narrower working directory, or \
         read-only with `write`",
        root.display(),
        own.display()
    ))
}

impl From<NotEnforceable> for RequestError {
    fn from(missing: NotEnforceable) -> Self {
        Self::new(ErrorCode::FailedToStart, missing.to_string())
    }
}

impl From<Looser> for RequestError {
    fn from(looser: Looser) -> Self {
        Self::new(ErrorCode::Forbidden, looser.to_string())
    }
}
