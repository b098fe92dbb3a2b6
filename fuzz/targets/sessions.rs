//! What a client of the Redis protocol sends, all the way through a session: every command with whatever arguments.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use argosy_base::Instant;
use argosy_engine::Reach;
use argosy_server::resp::fake::Fake;
use argosy_server::resp::{CallToken, Context, FrontEnd, Limits, Scratch, Session, Settings};
use argosy_server::service::{Begun, ReplySink, ReplyTo, Response, Service};

use super::{Target, input};

pub(crate) const TARGET: Target = Target {
    name: "sessions",
    run,
    seeds,
};

/// Answers that come late.
#[derive(Default)]
struct Late(Mutex<Vec<(u64, Response)>>);

impl ReplySink for Late {
    fn deliver(&self, token: u64, response: Response) {
        let mut late = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        late.push((token, response));
    }
}

fn run(data: &[u8]) -> bool {
    let Some((which, bytes)) = data.split_first() else {
        return false;
    };
    let limits = Limits {
        in_flight_max: 3,
        output_bytes_max: 4096,
        reply_bytes_max: 64 << 10,
        ..Limits::default()
    };
    let settings = Settings {
        limits,
        ..Settings::default()
    };
    let front = FrontEnd::new(settings, Instant::default());
    let (service, late) = (Fake::new(), Arc::<Late>::default());
    let sink: Arc<dyn ReplySink> = late.clone();
    let mut session = Session::new(1, limits);
    let mut scratch = Scratch::default();
    let context = Context {
        front: &front,
        service: &service,
        now: Instant::from_nanos(9_000_000_000),
        wall: Duration::new(1_000, 5_000),
    };
    // In pieces of some length.
    let piece = [usize::MAX, 1, 7, 64][usize::from(which % 4)].min(bytes.len().max(1));
    let (mut written, mut rest) = (0, bytes);
    loop {
        let mut moved = false;
        if !rest.is_empty() && session.wants_input() {
            let (now, later) = rest.split_at(piece.min(rest.len()));
            session.receive(now);
            rest = later;
            moved = true;
        }
        while let Some(call) = session.next_call(&context, &mut scratch) {
            let token = call.token;
            let reply = ReplyTo::new(&sink, token.get());
            if let Begun::Answered(response) = service.call(call.request, Reach::Device, reply) {
                session.answer(&front, token, response);
            }
            moved = true;
        }
        let mut answers = late.0.lock().unwrap_or_else(PoisonError::into_inner);
        for (token, response) in std::mem::take(&mut *answers) {
            session.answer(&front, CallToken::from_raw(token), response);
            moved = true;
        }
        drop(answers);
        let output = session.output().len();
        if output > 0 {
            session.wrote(output);
            written += output;
            moved = true;
        }
        if !moved {
            return written > 0;
        }
    }
}

fn seeds() -> Vec<Vec<u8>> {
    SCRIPTS
        .iter()
        .enumerate()
        .map(|(at, script)| {
            let piece = u8::try_from(at % 4).expect("below four");
            input(piece, script.replace('\n', "\r\n").as_bytes())
        })
        .collect()
}

const SCRIPTS: [&str; 11] = [
    "SET k 10\nGET k\nGETSET k 20\nGETDEL k\nSETNX k 1\nSTRLEN k\nAPPEND k xyz\nGETRANGE k -3 -1\n",
    "SET k v EX 100 NX GET\nSET k v PXAT 99999999999999 KEEPTTL\nSET k v IFEQ v\nGETEX k PX 77\nPERSIST k\n",
    "INCR n\nINCRBY n 9223372036854775807\nDECRBY n -5\nINCRBYFLOAT n 1.5e300\nSETRANGE n 5 abc\n",
    "EXPIRE k 10 NX\nPEXPIREAT k 1 GT\nTTL k\nPTTL k\nEXPIRETIME k\nPEXPIRETIME k\n",
    "MSET a 1 b 2\nMSETNX a 1 c 2\nMGET a b c\nEXISTS a b\nDEL a b\nUNLINK c\nTYPE a\n",
    "KEYS [a-z]*\nSCAN 0 MATCH k?* COUNT 5 TYPE string\nDBSIZE\nRANDOMKEY\nFLUSHALL\n",
    "MSET a 1 b 2\nKV.RANGE - + LIMIT 10 REV\nKV.PREFIX a LIMIT 3 KEYSONLY\nKV.BATCH SET a 1 PX 5 DEL b DELRANGE a z\n",
    "KV.INGEST b 1 a 2\nKV.INGEST a 1 b 2\nKV.FLUSH\nKV.COMPACT\n",
    "KV.SNAPSHOT OPEN TTL 9\nKV.GET a SNAPSHOT 0000000000000001\nKV.MGET SNAPSHOT 00 a\n",
    "*3\n$3\nSET\n$1\nk\n$2\nhi\n*2\n$3\nGET\n$1\nk\nHELLO 3 SETNAME me\nCLIENT LIST\nCLIENT REPLY SKIP\nPING\n",
    "COMMAND DOCS GET\nCOMMAND GETKEYS SET a b\nINFO all\nCONFIG GET *\nSELECT 0\nECHO x\nRESET\nQUIT\n",
];
