//! `cargo xtask tidy` as a test: the tree follows the rules of this repository.

use xtask::tidy::{Tree, check};
use xtask::workspace_root;

#[test]
fn the_tree_is_tidy() {
    let tree = Tree::read(&workspace_root()).expect("the workspace can be read");
    let report = check(&tree);
    assert!(report.is_clean(), "\n{}", report.render());
}

#[test]
fn the_whole_tree_is_looked_at() {
    let tree = Tree::read(&workspace_root()).expect("the workspace can be read");
    let rooms: Vec<&str> = tree.rooms.iter().map(|manifest| manifest.room.as_str()).collect();
    assert_eq!(
        rooms,
        [
            "agents",
            "api",
            "cli",
            "clients",
            "daemon",
            "hostile",
            "keeper",
            "mcp",
            "model",
            "os",
            "simulation",
            "store",
            "testkit",
            "top",
            "xtask"
        ]
    );
    for room in rooms {
        assert!(tree.sources.iter().any(|source| source.room == room), "no source of {room} was read");
    }
}
