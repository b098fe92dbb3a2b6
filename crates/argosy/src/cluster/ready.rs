//! Asking a server's admin port whether it is ready.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// How long one question may take.
const TIMEOUT: Duration = Duration::from_millis(500);

/// Longest answer read, in bytes.
const ANSWER_MAX: u64 = 16 << 10;

/// Asks once: ready, or why not.
pub fn ask(admin: SocketAddr) -> Result<(), String> {
    let answer = get(admin).map_err(|error| format!("{admin} does not answer: {error}"))?;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status = head.split(' ').nth(1).unwrap_or("");
    if status == "200" {
        Ok(())
    } else {
        Err(format!("{status} {}", body.trim()))
    }
}

fn get(admin: SocketAddr) -> std::io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&admin, TIMEOUT)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    let request = format!("GET /readyz HTTP/1.1\r\nHost: {admin}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    stream.take(ANSWER_MAX).read_to_end(&mut answer)?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn only_200_is_ready() {
        for (answer, ready) in [
            ("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok\n", Ok(())),
            (
                "HTTP/1.1 503 Service Unavailable\r\n\r\nregion 1: 2 of 3 members\n",
                Err("503 region 1: 2 of 3 members".to_owned()),
            ),
        ] {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let addr = listener.local_addr().unwrap();
            let server = std::thread::Builder::new().spawn(move || {
                let (mut stream, _) = listener.accept().unwrap();
                let mut request = [0; 512];
                let read = stream.read(&mut request).unwrap();
                assert!(request[..read].starts_with(b"GET /readyz "));
                stream.write_all(answer.as_bytes()).unwrap();
            });
            assert_eq!(ask(addr), ready);
            server.unwrap().join().unwrap();
        }
    }
}
