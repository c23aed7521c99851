//! Webhook URLs: a URL that passes the check can be posted to, and goes to the host that the record shows.

use pinfold_daemon::fuzz_entry;
use pinfold_model::notify::{Notify, webhook_host};

use crate::feed::text;

pub(crate) fn target(data: &[u8]) {
    let address = text(data);
    let notify = Notify { webhook: Some(address.clone()), ..Notify::default() };
    if notify.check().is_ok() {
        let shown = webhook_host(&address).expect("a valid URL has a host");
        assert_eq!(fuzz_entry::webhook(&address), Some(shown), "it goes to another host: {address}");
    }
}
