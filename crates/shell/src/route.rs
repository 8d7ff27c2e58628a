//! A route: its path, its needs, and its handler.

use axum::handler::Handler;
use axum::http::Method;
use axum::routing::{MethodFilter, MethodRouter, on};

/// Rights that a request needs before a route handles it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    /// Nothing: also answered without a token.
    Nothing,
    /// A valid token, whatever it allows.
    Token,
    /// A token that may read something. Streams that may not be read are answered like ones that do
    /// not exist.
    Read,
    /// A token that may write something.
    Write,
    /// A token that may manage something.
    Manage,
}

/// Where a route is, and what it needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// GET (which answers HEAD too) or POST.
    pub method: Method,
    /// The path, with `{name}` for one part of it and `{*name}` for the rest.
    pub path: &'static str,
    /// Needs of a request.
    pub needs: Needs,
    /// Whether a token may stand in the address, as the password `p` of clients that send no
    /// header.
    pub token_in_address: bool,
}

/// A route of a role whose handlers share an `S`.
#[derive(Debug)]
pub struct Route<S = ()> {
    /// Where it is, and what it needs.
    pub endpoint: Endpoint,
    /// Handler of the path.
    pub handler: MethodRouter<S>,
}

impl<S: Clone + Send + Sync + 'static> Route<S> {
    /// A route for GET and HEAD.
    pub fn get<H, T>(path: &'static str, needs: Needs, handler: H) -> Route<S>
    where
        H: Handler<T, S>,
        T: 'static,
    {
        Route {
            endpoint: Endpoint {
                method: Method::GET,
                path,
                needs,
                token_in_address: false,
            },
            handler: on(MethodFilter::GET, handler),
        }
    }

    /// A route for POST.
    pub fn post<H, T>(path: &'static str, needs: Needs, handler: H) -> Route<S>
    where
        H: Handler<T, S>,
        T: 'static,
    {
        Route {
            endpoint: Endpoint {
                method: Method::POST,
                path,
                needs,
                token_in_address: false,
            },
            handler: on(MethodFilter::POST, handler),
        }
    }

    /// The same, where a token may stand in the address.
    #[must_use]
    pub fn with_token_in_address(mut self) -> Route<S> {
        self.endpoint.token_in_address = true;
        self
    }

    /// The same with what its handler shares with others.
    pub fn with_state(self, state: S) -> Route {
        Route {
            endpoint: self.endpoint,
            handler: self.handler.with_state(state),
        }
    }
}
