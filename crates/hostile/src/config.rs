//! The configuration file: refused with its name and the setting, or taken; and what is taken can be written down again.

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
            // A secret is not shown.
            assert_eq!(Config { webhook_secret: None, ..config }, again, "{written}");
        }
    }
}
