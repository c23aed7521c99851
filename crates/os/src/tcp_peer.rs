//! Which user opened a TCP connection from this machine.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::net::{IpAddr, SocketAddr};

/// The user id of the socket at the other end of a loopback connection, as `/proc/net/tcp` shows it; `None` if there is no such socket: it
/// is closed, or in another network namespace. `own` is our end of the connection.
pub fn peer_uid(peer: SocketAddr, own: SocketAddr) -> io::Result<Option<u32>> {
    let table = if peer.is_ipv4() { "/proc/self/net/tcp" } else { "/proc/self/net/tcp6" };
    let (local, remote) = (render(peer), render(own));
    for line in BufReader::new(File::open(table)?).lines() {
        let line = line?;
        let mut fields = line.split_ascii_whitespace().skip(1);
        if fields.next() == Some(&local) && fields.next() == Some(&remote) {
            // After the state, the queues, the timer and the retransmissions.
            return Ok(fields.nth(4).and_then(|uid| uid.parse().ok()));
        }
    }
    Ok(None)
}

/// An address as the kernel writes it there: words of 32 bits in the machine's byte order.
fn render(address: SocketAddr) -> String {
    let words = |octets: &[u8]| -> String {
        let words = octets.chunks_exact(4).map(|word| u32::from_ne_bytes([word[0], word[1], word[2], word[3]]));
        words.map(|word| format!("{word:08X}")).collect()
    };
    let ip = match address.ip() {
        IpAddr::V4(ip) => words(&ip.octets()),
        IpAddr::V6(ip) => words(&ip.octets()),
    };
    format!("{ip}:{:04X}", address.port())
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv6Addr, TcpListener, TcpStream};

    use super::*;

    #[test]
    fn the_peer_of_a_connection_from_here_is_our_own_user() {
        for any in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(any) else { continue };
            let address = listener.local_addr().expect("an address");
            let client = TcpStream::connect(address).expect("connected");
            let (server, peer) = listener.accept().expect("accepted");
            let own = server.local_addr().expect("an address");
            assert_eq!(peer_uid(peer, own).expect("readable"), Some(crate::socket::own_uid()), "{any}");
            drop((client, server));
            let unconnected = SocketAddr::new(peer.ip(), 1);
            assert_eq!(peer_uid(unconnected, own).expect("readable"), None);
        }
    }

    #[test]
    fn addresses_are_written_as_the_kernel_writes_them() {
        if cfg!(target_endian = "little") {
            assert_eq!(render(SocketAddr::from(([127, 0, 0, 1], 80))), "0100007F:0050");
            let loopback = SocketAddr::from((Ipv6Addr::LOCALHOST, 443));
            assert_eq!(render(loopback), "00000000000000000000000001000000:01BB");
        }
    }
}
