//! A container runtime of any user with Docker's API, in a private `/run`.

use std::{
    fs,
    io::{Read as _, Write as _},
    os::unix::{
        fs::chown,
        net::{UnixListener, UnixStream},
    },
    path::Path,
    sync::{Arc, Mutex},
    thread,
};

use rustix::{
    mount::{MountFlags, MountPropagationFlags, mount, mount_change},
    process::Uid,
    thread::{UnshareFlags, set_thread_res_uid, unshare_unsafe},
};

/// The local user who attacks.
pub const USER: u32 = 1000;
/// The runtime directory of the user.
pub const OF_USER: &str = "/run/user/1000";

/// Runs a test in a mount namespace with an empty `/run`, except for the user's runtime directory.
pub fn with_private_run(test: impl FnOnce() + Send) {
    let inside = || {
        // SAFETY: only this thread leaves the namespace, and no other thread uses its working directory.
        unsafe { unshare_unsafe(UnshareFlags::NEWNS) }.unwrap();
        mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC).unwrap();
        mount("tmpfs", "/run", "tmpfs", MountFlags::empty(), None).unwrap();
        for folder in [OF_USER.to_owned(), format!("{OF_USER}/podman")] {
            fs::create_dir_all(&folder).unwrap();
            chown(&folder, Some(USER), None).unwrap();
        }
        test();
    };
    thread::scope(|scope| scope.spawn(inside).join().unwrap());
}

/// A runtime that listens until the test ends.
pub struct Runtime(Arc<Mutex<Vec<String>>>);

impl Runtime {
    /// Listens as a user. `reply` returns the JSON for a request's path, or `None` to leave the request
    /// unanswered.
    pub fn listen(socket: &str, user: u32, reply: impl Fn(&str) -> Option<String> + Send + 'static) -> Self {
        let mut held = Vec::new();
        Self::serve(socket, user, move |path, client| match reply(path) {
            Some(body) => respond(client, &body),
            None => held.push(client),
        })
    }

    /// Listens as a user. `answer` gets a request's path and its connection.
    pub fn serve(socket: &str, user: u32, mut answer: impl FnMut(&str, UnixStream) + Send + 'static) -> Self {
        let (path, requests) = (Path::new(socket).to_owned(), Arc::<Mutex<Vec<String>>>::default());
        let binding = thread::spawn(move || {
            let user = Uid::from_raw(user);
            // User ids belong to a thread, and this thread ends with the socket.
            set_thread_res_uid(user, user, user).unwrap();
            UnixListener::bind(path).unwrap()
        });
        let (listener, log) = (binding.join().unwrap(), Arc::clone(&requests));
        thread::spawn(move || {
            for mut client in listener.incoming().map_while(Result::ok) {
                let path = request(&mut client);
                log.lock().unwrap().push(path.clone());
                answer(&path, client);
            }
        });
        Self(requests)
    }

    /// Returns the paths of all requests.
    pub fn requests(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

/// Returns the description of a container with this name.
pub fn container(path: &str, name: &str) -> String {
    let id = path.split('/').find(|part| part.len() == 64).unwrap_or_default();
    serde_json::json!({"Id": id, "Name": format!("/{name}"), "Config": {"Labels": {"com.docker.compose.service": name}}})
        .to_string()
}

/// Reads a request, and returns its path.
pub fn request(client: &mut UnixStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        match client.read(&mut byte) {
            Ok(1) => head.push(byte[0]),
            _ => break,
        }
    }
    String::from_utf8_lossy(&head).split_whitespace().nth(1).unwrap_or_default().to_owned()
}

/// The client may have closed the connection.
fn respond(mut client: UnixStream, body: &str) {
    let head = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length:";
    let _ = write!(client, "{head} {}\r\n\r\n{body}", body.len());
}
