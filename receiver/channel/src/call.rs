//! Calls between parts: each request names the type of its reply and its time limit.

use std::{convert::Infallible, os::fd::OwnedFd, time::Duration};

use serde::{Serialize, de::DeserializeOwned};

/// A request, with the type of its reply.
pub trait Call: Sized {
    /// The type of the reply.
    type Reply: Serialize + DeserializeOwned;
    /// The time within which the reply must arrive.
    const LIMIT: Duration;

    /// Encodes the reply of a request that cannot fail.
    fn success(reply: Self::Reply) -> Reply {
        Self::reply(Ok::<_, Infallible>(reply))
    }

    /// Encodes the reply, or the reason why the request failed.
    fn reply<E: ToString>(result: Result<Self::Reply, E>) -> Reply {
        Self::reply_with(result.map(|reply| (reply, Vec::new())))
    }

    /// Encodes a reply with descriptors.
    fn reply_with<E: ToString>(result: Result<(Self::Reply, Vec<OwnedFd>), E>) -> Reply {
        let (result, descriptors) = match result {
            Ok((reply, descriptors)) => (Ok(reply), descriptors),
            Err(error) => (Err(error.to_string()), Vec::new()),
        };
        Reply::new(&result, descriptors)
    }
}

/// An encoded reply.
#[derive(Debug, Default)]
pub struct Reply {
    pub(crate) body: Vec<u8>,
    pub(crate) descriptors: Vec<OwnedFd>,
}

impl Reply {
    /// Encodes a value. A value that cannot be encoded becomes an empty body, which is malformed for the caller.
    #[must_use]
    pub fn new(value: &impl Serialize, descriptors: Vec<OwnedFd>) -> Self {
        Self { body: postcard::to_stdvec(value).unwrap_or_default(), descriptors }
    }

    /// Encodes the reason why a request failed.
    #[must_use]
    pub fn failed(reason: &str) -> Self {
        Self::new(&Err::<(), _>(reason), Vec::new())
    }

    /// Returns the encoded body and the descriptors, for a protocol with its own frames.
    #[must_use]
    pub fn into_parts(self) -> (Vec<u8>, Vec<OwnedFd>) {
        (self.body, self.descriptors)
    }

    /// Makes a reply from its parts.
    #[must_use]
    pub const fn from_parts(body: Vec<u8>, descriptors: Vec<OwnedFd>) -> Self {
        Self { body, descriptors }
    }

    /// Decodes the reply in the process that made it.
    ///
    /// # Errors
    /// [`ChannelError::Malformed`](crate::ChannelError::Malformed) if the reply has another type.
    pub fn decode<T: DeserializeOwned>(self) -> Result<(T, Vec<OwnedFd>), crate::ChannelError> {
        Ok((postcard::from_bytes(&self.body).map_err(crate::malformed)?, self.descriptors))
    }
}

/// Declares the requests that a part executes: an enumeration, and for each variant a type that implements [`Call`].
#[macro_export]
macro_rules! calls {
    (
        $(#[$about:meta])*
        pub enum $Request:ident {
            $($(#[$doc:meta])* $Name:ident { $($(#[$field_doc:meta])* $field:ident: $type:ty),* $(,)? } -> $Reply:ty, within $limit:expr;)*
        }
    ) => {
        $(#[$about])*
        #[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
        pub enum $Request {
            $($(#[$doc])* $Name($Name),)*
        }
        $(
            $(#[$doc])*
            #[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
            pub struct $Name {
                $($(#[$field_doc])* pub $field: $type,)*
            }

            impl $crate::Call for $Name {
                type Reply = $Reply;
                const LIMIT: std::time::Duration = $limit;
            }

            impl From<$Name> for $Request {
                fn from(call: $Name) -> Self {
                    Self::$Name(call)
                }
            }
        )*
    };
}
