//! Lists: every live process is on one of the pages, whatever happens between them.

use std::collections::HashSet;

use pinfold_api::types::{ListQuery, ProcessList, StartRequest};
use pinfold_testkit::{Pinfold, until_some};

use crate::PINFOLD;

fn sleeper() -> StartRequest {
    let argv = ["sleep", "300"].map(str::to_owned).into();
    StartRequest { argv: Some(argv), ..StartRequest::default() }
}

/// All pages of a list, with something done between them.
fn pages(pinfold: &Pinfold, query: &ListQuery, between: impl Fn()) -> Vec<ProcessList> {
    let mut pages = vec![pinfold.list(query)];
    while let Some(next) = pages.last().and_then(|page| page.next.clone()) {
        between();
        pages.push(pinfold.list(&ListQuery { page: Some(next), ..query.clone() }));
    }
    pages
}

fn ids(pages: &[ProcessList]) -> Vec<&str> {
    pages.iter().flat_map(|page| &page.processes).map(|record| record.id.as_str()).collect()
}

#[test]
fn list_never_hides_running() {
    let pinfold = Pinfold::start(PINFOLD);
    let ended: Vec<_> = (0..15).map(|_| pinfold.wait_finished(&pinfold.sh("exit 0").id).id).collect();
    let mut running: Vec<String> = vec![];
    for (count, limit) in [(11, 4), (300, 50)] {
        while running.len() < count {
            running.push(pinfold.start_request(&sleeper()).record.id);
        }
        let query = ListQuery { limit: Some(limit), ..ListQuery::default() };
        let quiet = pages(&pinfold, &query, || {});
        let newest_first: Vec<&str> = running.iter().rev().chain(ended.iter().rev()).map(String::as_str).collect();
        assert_eq!(ids(&quiet), newest_first, "live ones first, each newest first");
        assert!(quiet.iter().all(|page| page.total as usize == count + ended.len()));
        assert!(quiet.iter().all(|page| page.processes.len() <= limit as usize));

        let live = ListQuery { status: Some("live".into()), ..query };
        let busy = pages(&pinfold, &live, || drop(pinfold.sh("sleep 300")));
        let seen = ids(&busy);
        assert_eq!(seen, newest_first[..count], "new ones do not move those that are there");
        let started = busy.len() - 1;
        assert_eq!(busy.last().map(|page| page.total as usize), Some(count + started));
        running.extend(pinfold.list(&live).processes[..started].iter().rev().map(|record| record.id.clone()));
    }
}

/// Processes end between two pages: each is listed exactly once.
#[test]
fn a_process_that_ends_is_always_in_the_list_once() {
    let pinfold = Pinfold::start(PINFOLD);
    for count in 1..=100 {
        pinfold.sh("exit 0");
        let list = pinfold.list(&ListQuery { limit: Some(500), ..ListQuery::default() });
        let ids: HashSet<_> = list.processes.iter().map(|record| &record.id).collect();
        assert_eq!((list.total, list.processes.len(), ids.len()), (count, count as usize, count as usize));
    }
}

#[test]
fn list_has_pid_and_ports() {
    let python = "import socket, time; s = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen(); \
                  print(s.getsockname()[1], flush=True); time.sleep(300)";
    if !std::path::Path::new("/usr/bin/python3").exists() {
        return println!("skipped: no python3 to listen on a port");
    }
    let pinfold = Pinfold::start(PINFOLD);
    let job = pinfold.sh(&format!("sleep 300 & /usr/bin/python3 -c \"{python}\" & wait"));
    let port: u16 = until_some("a port", || pinfold.text(&job.id).trim().parse().ok());
    let list = pinfold.list(&ListQuery::default());
    let [record] = list.processes.as_slice() else { panic!("{list:?}") };
    assert_eq!((record.pid, record.tree.len()), (job.pid, 3));
    let leader = &record.tree[0];
    assert!(Some(leader.pid) == job.pid && record.tree[1..].iter().all(|member| member.ppid == leader.pid));
    let listening: Vec<_> = record.tree.iter().filter(|member| !member.ports.is_empty()).collect();
    assert!(listening.len() == 1 && listening[0].ports == [port], "{record:?}");
    assert!(listening[0].command.contains("python3"));
    assert!(pinfold.cli(&["ps"]).stdout.contains(&port.to_string()));
}
