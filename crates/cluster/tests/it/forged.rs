//! Forged confirmations: a cloud that confirms rows of before the edge's start frees them once it
//! proves that it has them, and not before.

use crate::hostile_cloud::{A_LOOK, ROWS, World, runtime};
use crate::nodes::until;
use headwater_cluster::{FreeStatus, MadeRoom};
use headwater_protocol::replication::challenge_digest;

#[test]
fn rows_of_before_the_start_are_freed_once_the_cloud_proves_that_it_has_them() {
    runtime().block_on(async {
        let world = World::start_after(World::write).await;
        // A cloud of an earlier version, which answers no challenges.
        let mut cloud = world.accept_with(false).await;
        let state = cloud.state().await;
        cloud.confirm_all(&state).await;
        until("it is told why nothing is freed", || {
            world.freeing().state == FreeStatus::NoChallenges
        })
        .await;
        tokio::time::sleep(A_LOOK).await;
        assert_eq!(world.freed(), 0);
        assert_eq!(world.uplink.make_room().unwrap(), MadeRoom::default());
        drop(cloud);
        // One that confirms everything, and has nothing.
        let mut cloud = world.accept().await;
        cloud.confirm_all(&state).await;
        cloud.answer_challenge(challenge_digest).await;
        until("a lie is noticed", || {
            let freeing = world.freeing();
            freeing.state == FreeStatus::Refuted && freeing.challenges.wrong == 1
        })
        .await;
        // It is asked again, and says that it has nothing; then, with what it has said before.
        cloud.answer_challenge(|_, _, _| [0; 32]).await;
        until("it lacks what it confirms", || {
            world.freeing().challenges.lacking == 1
        })
        .await;
        cloud
            .answer_challenge(|_, range, _| challenge_digest(&[0; 32], range, &[]))
            .await;
        until("a second lie is noticed", || {
            world.freeing().challenges.wrong == 2
        })
        .await;
        let freeing = world.freeing();
        assert_eq!(
            (freeing.partitions, freeing.challenges.proven_bytes),
            (0, 0)
        );
        assert!(freeing.challenges.refuted_segments > 0);
        assert_eq!(world.uplink.make_room().unwrap().bytes, 0);
        // Once it has the bytes, over another connection, they are freed.
        drop(cloud);
        let mut cloud = world.accept().await;
        for segment in state.segments() {
            cloud
                .fetch_all(state.name(), segment.id, segment.bytes)
                .await;
        }
        cloud.confirm_all(&state).await;
        cloud.answer_until(|| world.freed() > 0).await;
        let freeing = world.freeing();
        assert_eq!(freeing.state, FreeStatus::Confirmed);
        assert_eq!(freeing.challenges.refuted_segments, 0);
        assert!(freeing.challenges.proven_bytes >= freeing.bytes);
        assert_eq!(world.secret_rows(), ROWS, "what is withheld stays");
    });
}

#[test]
fn a_full_disk_waits_for_the_proof_of_the_cloud() {
    runtime().block_on(async {
        let world = World::start_after(World::write).await;
        let mut cloud = world.accept().await;
        let state = cloud.state().await;
        for segment in state.segments() {
            cloud
                .fetch_all(state.name(), segment.id, segment.bytes)
                .await;
        }
        assert_eq!(world.uplink.make_room().unwrap(), MadeRoom::default());
        cloud.confirm_all(&state).await;
        until("it is proving", || {
            let made = world.uplink.make_room().unwrap();
            assert_eq!(made.bytes, 0);
            made.is_proving
        })
        .await;
        let mut made = MadeRoom::default();
        cloud
            .answer_until(|| {
                made = world.uplink.make_room().unwrap();
                made.bytes > 0 || world.freed() > 0
            })
            .await;
        until("nothing more is to be proven", || {
            !world.uplink.make_room().unwrap().is_proving
        })
        .await;
        assert!(world.freed() > 0);
    });
}
