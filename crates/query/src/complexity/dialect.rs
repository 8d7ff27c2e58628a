//! PostgreSQL's grammar, with each of the parser's queries of the dialect counted as a step of the
//! budget.
//!
//! If a text is ambiguous, the parser tries one reading after the other, and drops the error of
//! each. The work can double with each level of nesting, so that a text of some hundred bytes takes
//! years. The parser queries its dialect at every word of every reading, and each query is counted.
//!
//! Invariant: every answer is that of [`PostgreSqlDialect`] unless its comment says otherwise;
//! defaults that the parser queries often are repeated here.

use crate::planner::step;
use datafusion::sql::sqlparser::ast::helpers::attached_token::AttachedToken;
use datafusion::sql::sqlparser::ast::{
    AlterTable, AlterTableOperation, Expr, RenameTableNameKind, Statement,
};
use datafusion::sql::sqlparser::dialect::{Dialect, PostgreSqlDialect, Precedence};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use std::any::TypeId;

/// The dialect of statements: PostgreSQL's, with every step of the parser counted.
#[derive(Debug, Default)]
pub struct Counted;

const POSTGRES: PostgreSqlDialect = PostgreSqlDialect {};

macro_rules! as_postgres {
    ($($name:ident),* $(,)?) => {
        $(fn $name(&self) -> bool {
            step();
            POSTGRES.$name()
        })*
    };
}

/// `ALTER VIEW [IF EXISTS] name RENAME TO name`
fn rename_view(parser: &mut Parser) -> Result<Statement, ParserError> {
    parser.expect_keywords(&[Keyword::ALTER, Keyword::VIEW])?;
    let if_exists = parser.parse_keywords(&[Keyword::IF, Keyword::EXISTS]);
    let name = parser.parse_object_name(false)?;
    parser.expect_keywords(&[Keyword::RENAME, Keyword::TO])?;
    let table_name = RenameTableNameKind::To(parser.parse_object_name(false)?);
    Ok(Statement::AlterTable(AlterTable {
        name,
        if_exists,
        only: false,
        operations: vec![AlterTableOperation::RenameTable { table_name }],
        location: None,
        on_cluster: None,
        table_type: None,
        end_token: AttachedToken::empty(),
    }))
}

impl Dialect for Counted {
    fn dialect(&self) -> TypeId {
        TypeId::of::<PostgreSqlDialect>()
    }

    fn identifier_quote_style(&self, identifier: &str) -> Option<char> {
        POSTGRES.identifier_quote_style(identifier)
    }

    fn is_delimited_identifier_start(&self, ch: char) -> bool {
        POSTGRES.is_delimited_identifier_start(ch)
    }

    fn is_identifier_start(&self, ch: char) -> bool {
        POSTGRES.is_identifier_start(ch)
    }

    fn is_identifier_part(&self, ch: char) -> bool {
        POSTGRES.is_identifier_part(ch)
    }

    fn is_custom_operator_part(&self, ch: char) -> bool {
        POSTGRES.is_custom_operator_part(ch)
    }

    fn is_reserved_for_identifier(&self, keyword: Keyword) -> bool {
        step();
        POSTGRES.is_reserved_for_identifier(keyword)
    }

    /// Unlike PostgreSQL, which does not support it.
    fn supports_match_recognize(&self) -> bool {
        true
    }

    fn parse_prefix(&self, parser: &mut Parser) -> Option<Result<Expr, ParserError>> {
        step();
        POSTGRES.parse_prefix(parser)
    }

    /// Unlike the parser's default, whose right operand of `IS DISTINCT FROM` extends to the end,
    /// including `AND` and `OR`.
    fn parse_infix(
        &self,
        parser: &mut Parser,
        expr: &Expr,
        precedence: u8,
    ) -> Option<Result<Expr, ParserError>> {
        step();
        let negated = if parser.parse_keywords(&[Keyword::IS, Keyword::DISTINCT, Keyword::FROM]) {
            false
        } else if parser.parse_keywords(&[
            Keyword::IS,
            Keyword::NOT,
            Keyword::DISTINCT,
            Keyword::FROM,
        ]) {
            true
        } else {
            return POSTGRES.parse_infix(parser, expr, precedence);
        };
        let left = Box::new(expr.clone());
        let right = parser.parse_subexpr(self.prec_value(Precedence::Is));
        Some(right.map(|right| match negated {
            false => Expr::IsDistinctFrom(left, Box::new(right)),
            true => Expr::IsNotDistinctFrom(left, Box::new(right)),
        }))
    }

    /// Unlike the parser's default, which does not support `ALTER VIEW … RENAME TO`: it is parsed
    /// as `ALTER TABLE`, which PostgreSQL accepts for views too.
    fn parse_statement(&self, parser: &mut Parser) -> Option<Result<Statement, ParserError>> {
        step();
        if parser.peek_keyword(Keyword::ALTER)
            && let Ok(Some(renamed)) = parser.maybe_parse(rename_view)
        {
            return Some(Ok(renamed));
        }
        POSTGRES.parse_statement(parser)
    }

    fn get_next_precedence(&self, parser: &Parser) -> Option<Result<u8, ParserError>> {
        step();
        POSTGRES.get_next_precedence(parser)
    }

    fn prec_value(&self, precedence: Precedence) -> u8 {
        POSTGRES.prec_value(precedence)
    }

    fn is_column_alias(&self, keyword: &Keyword, parser: &mut Parser) -> bool {
        step();
        POSTGRES.is_column_alias(keyword, parser)
    }

    fn is_table_alias(&self, keyword: &Keyword, parser: &mut Parser) -> bool {
        step();
        POSTGRES.is_table_alias(keyword, parser)
    }

    fn is_table_factor(&self, keyword: &Keyword, parser: &mut Parser) -> bool {
        step();
        POSTGRES.is_table_factor(keyword, parser)
    }

    /// Unlike PostgreSQL: with it the parser reads each argument of a function twice, and so the
    /// innermost of twenty nested calls a million times. Only the JSON functions need it, for
    /// argument names that are texts.
    fn supports_named_fn_args_with_expr_name(&self) -> bool {
        false
    }

    // Not counted: the tokenizer queries this for every character.
    fn supports_nested_comments(&self) -> bool {
        POSTGRES.supports_nested_comments()
    }

    fn supports_numeric_literal_underscores(&self) -> bool {
        POSTGRES.supports_numeric_literal_underscores()
    }

    fn supports_string_escape_constant(&self) -> bool {
        POSTGRES.supports_string_escape_constant()
    }

    fn supports_unicode_string_literal(&self) -> bool {
        POSTGRES.supports_unicode_string_literal()
    }

    fn supports_geometric_types(&self) -> bool {
        POSTGRES.supports_geometric_types()
    }

    fn supports_comment_optimizer_hint(&self) -> bool {
        POSTGRES.supports_comment_optimizer_hint()
    }

    as_postgres!(
        allow_extract_custom,
        allow_extract_single_quotes,
        supports_alter_column_type_using,
        supports_array_typedef_with_brackets,
        supports_bitwise_shift_operators,
        supports_comma_separated_trim,
        supports_comment_on,
        supports_create_index_with_clause,
        supports_create_table_like_parenthesized,
        supports_cross_join_constraint,
        supports_cte_without_as,
        supports_empty_projections,
        supports_explain_with_utility_options,
        supports_factorial_operator,
        supports_filter_during_aggregation,
        supports_from_first_select,
        supports_group_by_expr,
        supports_insert_table_alias,
        supports_interval_options,
        supports_left_associative_joins_without_parens,
        supports_listen_notify,
        supports_load_extension,
        supports_named_fn_args_with_colon_operator,
        supports_notnull_operator,
        supports_select_wildcard_with_alias,
        supports_set_names,
        supports_top_before_distinct,
        supports_trailing_commas,
        supports_xml_expressions,
    );
}
