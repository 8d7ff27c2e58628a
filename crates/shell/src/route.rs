//! A route: its path, its needs, and its handler.

use crate::error::ErrorAnswer;
use axum::extract::Request;
use axum::handler::Handler;
use axum::http::Method;
use axum::routing::{MethodFilter, MethodRouter, on};

/// Rights that a request needs before a route handles it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    /// No token; a present token is not checked.
    Public,
    /// A valid token, with any rights.
    Token,
    /// A token that may read at least one stream. Unreadable streams are answered like absent ones.
    Read,
    /// A token that may write at least one stream.
    Write,
    /// A token that may manage at least one stream.
    Manage,
}

/// Location of a route, and its needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// GET (which answers HEAD too) or POST.
    pub method: Method,
    /// The path, with `{name}` for one segment and `{*name}` for the remaining ones.
    pub path: &'static str,
    /// Needs of a request.
    pub needs: Needs,
    /// True when a token is accepted in the address, as the password `p` of clients that do not
    /// send a header.
    pub token_in_address: bool,
    /// True when its answers are made of stored rows, so that warnings about rows are added to
    /// them.
    pub answers_rows: bool,
}

/// Check of a request before its handler, which may change it. Cheaper than a layer, which boxes
/// each request's work.
pub type Prepare = fn(&mut Request) -> Result<(), ErrorAnswer>;

/// A route of a role whose handlers share an `S`.
#[derive(Debug)]
pub struct Route<S = ()> {
    /// Location and needs.
    pub endpoint: Endpoint,
    /// Handler of the path.
    pub handler: MethodRouter<S>,
    /// Called for each admitted request.
    pub prepare: Option<Prepare>,
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
                answers_rows: needs == Needs::Read,
            },
            handler: on(MethodFilter::GET, handler),
            prepare: None,
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
                answers_rows: needs == Needs::Read,
            },
            handler: on(MethodFilter::POST, handler),
            prepare: None,
        }
    }

    /// The same route, with tokens accepted in the address.
    #[must_use]
    pub fn with_token_in_address(mut self) -> Route<S> {
        self.endpoint.token_in_address = true;
        self
    }

    /// The same route, with answers made of stored rows although it needs no right to read: its
    /// handler checks rights itself.
    #[must_use]
    pub fn with_rows(mut self) -> Route<S> {
        self.endpoint.answers_rows = true;
        self
    }

    /// The same route with the state that its handlers share.
    pub fn with_state(self, state: S) -> Route {
        Route {
            endpoint: self.endpoint,
            handler: self.handler.with_state(state),
            prepare: self.prepare,
        }
    }
}
