//! Embeds sentences with a traced BERT-like encoder and prints their similarities.
//!
//! ```text
//! cargo run --release --example embed_text -- model.pt vocab.txt "A cat sleeps." "A kitten naps." "Stocks fell."
//! ```
//!
//! `model.pt` takes token ids and an attention mask, both `i64[batch, length]`, and returns `f32[batch, length, width]`
//! (a trace of a sentence-transformers model does). `vocab.txt` is its WordPiece vocabulary, one token a line; tokens beyond
//! the model's own vocabulary count as unknown if `--vocabulary N` says how many the model has.

#![expect(clippy::print_stdout, reason = "an example talks to its user")]

use std::error::Error;

use onionskin::{CompileOptions, Device, Model, Tensor, gpu};
use tokenizers::models::wordpiece::WordPiece;
use tokenizers::normalizers::bert::BertNormalizer;
use tokenizers::pre_tokenizers::bert::BertPreTokenizer;
use tokenizers::{PaddingParams, Tokenizer};

type Failure = Box<dyn Error + Send + Sync>;

fn main() -> Result<(), Failure> {
    gpu::widen_vectors(); // where Mesa's rasteriser is all there is
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let limit = vocabulary_limit(&mut arguments)?;
    let [model, vocabulary, sentences @ ..] = arguments.as_slice() else {
        return Err("usage: embed_text [--vocabulary N] MODEL VOCABULARY SENTENCE...".into());
    };
    let (ids, mask) = tokenize(vocabulary, limit, sentences)?;
    let device = Device::auto()?;
    let session = Model::open(model)?.compile(&device, &CompileOptions::default())?;
    let outputs = session.run(&[ids, mask.clone()])?;
    let embeddings = mean_pool(outputs.first().ok_or("the encoder has no output")?, &mask);
    println!("on {device}");
    for (index, (left, sentence)) in embeddings.iter().zip(sentences).enumerate() {
        for (right, other) in embeddings.iter().zip(sentences).skip(index + 1) {
            println!("{:6.3}  {sentence:?} and {other:?}", cosine(left, right));
        }
    }
    Ok(())
}

fn vocabulary_limit(arguments: &mut Vec<String>) -> Result<Option<i64>, Failure> {
    if arguments
        .first()
        .is_none_or(|first| first != "--vocabulary")
    {
        return Ok(None);
    }
    let limit = arguments
        .get(1)
        .ok_or("--vocabulary wants a number")?
        .parse()?;
    arguments.drain(..2);
    Ok(Some(limit))
}

/// Returns token ids and mask of `[CLS] sentence [SEP]`, padded to the longest sentence.
fn tokenize(
    vocabulary: &str,
    limit: Option<i64>,
    sentences: &[String],
) -> Result<(Tensor, Tensor), Failure> {
    let model = WordPiece::from_file(vocabulary)
        .unk_token("[UNK]".into())
        .build()?;
    let mut tokenizer = Tokenizer::new(model);
    tokenizer
        .with_normalizer(Some(BertNormalizer::default()))
        .with_pre_tokenizer(Some(BertPreTokenizer));
    tokenizer.with_padding(Some(PaddingParams::default()));
    let special = |token: &str| {
        tokenizer
            .token_to_id(token)
            .ok_or_else(|| format!("the vocabulary lacks {token}"))
    };
    let (start, end, unknown) = (special("[CLS]")?, special("[SEP]")?, special("[UNK]")?);
    let framed: Vec<Vec<i64>> = sentences
        .iter()
        .map(|sentence| {
            let encoding = tokenizer.encode(sentence.as_str(), false)?;
            let known = |id: u32| {
                if limit.is_some_and(|limit| i64::from(id) >= limit) {
                    unknown
                } else {
                    id
                }
            };
            let tokens = encoding.get_ids().iter().map(|id| known(*id));
            Ok([start]
                .into_iter()
                .chain(tokens)
                .chain([end])
                .map(i64::from)
                .collect())
        })
        .collect::<Result<_, Failure>>()?;
    let length = framed
        .iter()
        .map(Vec::len)
        .max()
        .ok_or("no sentences given")?;
    let padded = |fill: fn(&Vec<i64>, usize) -> i64| {
        framed
            .iter()
            .flat_map(|row| (0..length).map(move |index| fill(row, index)))
            .collect::<Vec<i64>>()
    };
    let ids = padded(|row, index| row.get(index).copied().unwrap_or(0));
    let mask = padded(|row, index| i64::from(index < row.len()));
    Ok((
        Tensor::from_vec([framed.len(), length], ids)?,
        Tensor::from_vec([framed.len(), length], mask)?,
    ))
}

/// Returns the mean of each sentence's token vectors, without padding.
fn mean_pool(hidden: &Tensor, mask: &Tensor) -> Vec<Vec<f32>> {
    let (length, width) = (hidden.shape()[1], hidden.shape()[2]);
    let (hidden, mask) = (hidden.to_f32(), mask.to_i64());
    let sentence = |(tokens, mask): (&[f32], &[i64])| {
        let mut mean = vec![0.0; width];
        for (token, _) in tokens
            .chunks(width)
            .zip(mask)
            .filter(|(_, mask)| **mask != 0)
        {
            mean.iter_mut()
                .zip(token)
                .for_each(|(sum, value)| *sum += value);
        }
        mean
    };
    hidden
        .chunks(length * width)
        .zip(mask.chunks(length))
        .map(sentence)
        .collect()
}

fn cosine(a: &[f32], b: &[f32]) -> f32 {
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(x, y)| x * y).sum::<f32>();
    dot(a, b) / (dot(a, a) * dot(b, b)).sqrt()
}
