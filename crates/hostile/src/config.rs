//! The configuration file: an error names the file, and an accepted configuration can be written and read again.

use std::path::Path;

use pinfold_daemon::config::Config;

use crate::feed::text;

pub(crate) fn target(data: &[u8]) {
    let path = Path::new("/etc/pinfold/config.toml");
    match Config::parse(&text(data), path) {
        Err(error) => assert!(error.to_string().contains("config.toml"), "{error}"),
        Ok(config) => {
            let written = config.render_toml();
            let again = Config::parse(&written, path).unwrap_or_else(|error| panic!("{error}\n{written}"));
            // The secret is not written.
            assert_eq!(Config { webhook_secret: None, ..config }, again, "{written}");
        }
    }
}
