//! Packed sequences, whose sizes are values: `tests/fixtures/make_packed.py` records them with several sets of lengths.

use onionskin::error::ErrorKind;
use onionskin::item::Item;
use onionskin::tensor::Tensor;
use onionskin::{CompileOptions, Device, Model};

use super::recorded::{bytes, devices, load, replay_case};

fn replay(name: &str) {
    replay_case(&format!("cases/packed/{name}"));
}

#[test]
fn lstm_of_sequences_in_any_order() {
    replay("lstm");
}

#[test]
fn lstm_with_projections_is_unrolled() {
    replay("lstm_projected");
}

#[test]
fn gru_padded_with_a_number() {
    replay("gru");
}

#[test]
fn rnn_of_two_directions() {
    replay("tanh");
}

#[test]
fn rnn_of_two_layers_without_biases() {
    replay("relu");
}

#[test]
fn a_total_length_needs_no_full_sequence() {
    replay("total_length");
}

#[test]
fn a_total_length_beyond_the_input() {
    replay("more_length");
}

#[test]
fn a_total_length_below_the_input() {
    replay("less_length");
}

#[test]
fn functions_of_rows_between_packing_and_padding() {
    replay("between");
}

#[test]
fn initial_states_are_sorted_along() {
    replay("given");
}

#[test]
fn a_script_asks_for_the_longest_length() {
    replay("scripted");
}

/// Returns the messages of a case for lengths other than the recorded ones.
fn error_lines(name: &str, lengths: &[i64]) -> Vec<String> {
    let case = load(&format!("cases/packed/{name}"));
    let mut inputs = case.sets[0].calls[0].inputs.clone();
    inputs[1] = Item::from(Tensor::from_vec([lengths.len()], lengths.to_vec()).unwrap());
    let model = Model::from_bytes(bytes(&case)).unwrap();
    let run = |device: Device| {
        let session = model
            .clone()
            .compile(&device, &CompileOptions::default())
            .unwrap();
        let error = session.call(&inputs).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Raised, "{error}");
        error.message().to_string()
    };
    devices().map(run).collect()
}

/// The result would be shorter than the graph's.
#[test]
fn a_longest_sequence_that_is_shorter_than_the_input() {
    for message in error_lines("lstm", &[2, 5, 3]) {
        assert!(message.contains("total_length"), "{message}");
    }
}

#[test]
fn lengths_that_pytorch_refuses() {
    for (lengths, wanted) in [
        ([6, 0, 3], "greater than 0"),
        ([7, 6, 3], "longer than"),
        ([3, 6, 2], "decreasing order"),
    ] {
        for message in error_lines("total_length", &lengths) {
            assert!(message.contains(wanted), "{message}");
        }
    }
}
