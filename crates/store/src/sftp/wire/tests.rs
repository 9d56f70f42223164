use super::*;

fn reply(kind: u8, id: u32, body: &[u8]) -> Vec<u8> {
    [&[kind][..], &id.to_be_bytes(), body].concat()
}

fn text(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    put(&mut out, bytes);
    out
}

#[test]
fn requests_have_the_bytes_of_the_draft() {
    let open = Request::Open { path: b"a", flags: open::WRITE | open::CREATE | open::EXCLUSIVE, mode: Some(0o444) };
    let expected = [&[0, 0, 0, 22, 3, 0, 0, 0, 7, 0, 0, 0, 1, b'a', 0, 0, 0, 0x2a][..], &[0, 0, 0, 4, 0, 0, 1, 0x24]];
    assert_eq!(open.encode(7), expected.concat());
    // The length counts the bytes that follow.
    let write = Request::Write { handle: &[0, 0, 0, 200], offset: 1 << 32, len: 5 }.encode(1);
    assert_eq!(write[..4], [0, 0, 0, 30]);
    assert_eq!(write.len(), 4 + 30 - 5);
    assert_eq!(write[write.len() - 4..], [0, 0, 0, 5]);
    let sync = Request::Sync { handle: b"h" }.encode(2);
    assert_eq!(&sync[9..], [&text(b"fsync@openssh.com")[..], &text(b"h")].concat());
    for request in [
        Request::Close { handle: b"" },
        Request::Read { handle: b"h", offset: 0, len: 1 },
        Request::Stat { path: b"p" },
        Request::LinkStat { path: b"p" },
        Request::FileStat { handle: b"h" },
        Request::SetMode { handle: b"h", mode: 0 },
        Request::OpenDir { path: b"" },
        Request::ReadDir { handle: b"h" },
        Request::Remove { path: b"p" },
        Request::MakeDir { path: b"p", mode: 0o700 },
        Request::Rename { from: b"a", to: b"b" },
        Request::Replace { from: b"a", to: b"b" },
        Request::Link { from: b"a", to: b"b" },
        Request::Room { path: b"p" },
        Request::Limits,
    ] {
        let packet = request.encode(9);
        assert_eq!(u32::from_be_bytes(*packet.first_chunk().unwrap()) as usize, packet.len() - 4, "{request:?}");
        assert_eq!(packet[5..9], [0, 0, 0, 9]);
    }
}

#[test]
fn replies_are_read_in_pieces_of_any_length() {
    let names = [
        &2u32.to_be_bytes()[..],
        &text(b"odd\xff"),
        &text(b"-rw-r--r--"),
        &(ATTR_SIZE | ATTR_MODE | ATTR_TIMES | ATTR_OWNER | ATTR_EXTENDED).to_be_bytes(),
        &7u64.to_be_bytes(),
        &[0; 8],
        &0o100_644u32.to_be_bytes(),
        &1u32.to_be_bytes(),
        &2u32.to_be_bytes(),
        &1u32.to_be_bytes(),
        &text(b"a@b"),
        &text(b"c"),
        &text(b"folder"),
        &text(b"drwxr-xr-x"),
        &0u32.to_be_bytes(),
    ]
    .concat();
    let packets = [
        reply(2, 3, &[text(b"fsync@openssh.com"), text(b"1")].concat()),
        reply(101, 1, &4u32.to_be_bytes()),
        reply(102, 2, &text(&[0, 0, 0, 200])),
        reply(103, 3, &text(b"bytes")),
        reply(104, 4, &names),
    ];
    let stream: Vec<u8> = packets.iter().flat_map(|packet| text(packet)).collect();
    for step in [1, 2, 3, 7, stream.len()] {
        let (mut frames, mut read) = (Frames::default(), Vec::new());
        for piece in stream.chunks(step) {
            frames
                .feed(piece, |packet| {
                    read.push(packet);
                    Ok(())
                })
                .unwrap();
        }
        assert_eq!(read.len(), packets.len());
        assert_eq!(read[0], Packet::Version { version: 3, extensions: vec![b"fsync@openssh.com".to_vec()] });
        assert_eq!(read[1], Packet::Reply { id: 1, reply: Reply::Status { code: 4, words: String::new() } });
        assert_eq!(read[2], Packet::Reply { id: 2, reply: Reply::Handle(vec![0, 0, 0, 200]) });
        let Packet::Reply { reply: Reply::Data(data), .. } = &read[3] else { panic!("{:?}", read[3]) };
        assert_eq!(data.bytes(), b"bytes");
        let Packet::Reply { reply: Reply::Names(entries), .. } = &read[4] else { panic!("{:?}", read[4]) };
        let attrs = Attrs { size: Some(7), mode: Some(0o100_644), mtime: Some(2) };
        assert_eq!(entries[0], Entry { name: b"odd\xff".to_vec(), attrs });
        assert_eq!((entries[0].attrs.sort(), entries[1].attrs.sort()), (Sort::File, Sort::Folder));
    }
}

#[test]
fn any_bytes_are_an_error_at_worst() {
    let mut frames = Frames::default();
    let error = frames.feed(b"Welcome to this machine\n", |_| Ok(())).unwrap_err();
    assert!(error.to_string().contains("login script"), "{error}");
    let mut state = 1u64;
    for _ in 0..20_000 {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        let kind = [2, 101, 102, 103, 104, 105, 201, 9][(state >> 33) as usize % 8];
        let len = (state >> 40) as usize % 40;
        let body: Vec<u8> = (0..len).map(|i| (state >> (i % 8 * 8)) as u8 & 0x83).collect();
        let _ = Packet::decode(reply(kind, 1, &body));
        let _ = Packet::decode(body.clone());
        let _ = (free_bytes(&body), limits(&body));
    }
}

#[test]
fn room_and_limits() {
    let room: Vec<u8> = [4096u64, 1024, 100, 50, 7, 0, 0, 0, 0, 0, 0].iter().flat_map(|n| n.to_be_bytes()).collect();
    assert_eq!(free_bytes(&room).unwrap(), 7 * 1024);
    let told: Vec<u8> = [262_144u64, 261_120, 261_120, 0].iter().flat_map(|n| n.to_be_bytes()).collect();
    assert_eq!(limits(&told).unwrap(), (261_120, 261_120));
}
