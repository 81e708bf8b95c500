//! Responses of the client protocol: every decoder on any bytes; what can be read is written back and read again as the same.
#![no_main]

use fuzz::bounded_target;
use wire::rpc;

macro_rules! round_trip {
    ($data:expr, $($response:ident),* $(,)?) => {$(
        if let Ok(response) = rpc::$response::decode($data) {
            let mut written = Vec::new();
            response.encode(&mut written);
            assert_eq!(rpc::$response::decode(&written), Ok(response), stringify!($response));
        }
    )*};
}

bounded_target!(fuzz::Bound::DECODER, |data: &[u8]| {
    let _ = rpc::status(data);
    round_trip!(
        data,
        StatusResponse,
        TableIdResponse,
        GetTableConfigResponse,
        RenewLeaseResponse,
        ServerControlAllResponse,
        ServerControlResponse,
        ReadResponse,
        WriteResponse,
        RetryResponse,
        IncrementResponse,
        EnumerateResponse,
        EchoResponse,
        MessageResponse,
        ProxyPingResponse,
        GetServerIdResponse,
        MultiReadResponse,
        MultiWriteResponse,
        MultiRemoveResponse,
        MultiIncrementResponse,
    );
    if let Ok(response) = rpc::MultiReadResponse::decode(data) {
        assert_eq!(response.count(), response.parts().count());
    }
    if let Ok(response) = rpc::EnumerateResponse::decode(data) {
        rpc::EnumeratedObject::decode_all(response.objects).for_each(drop);
    }
    if let Ok(stats) = rpc::PerfStats::decode(data) {
        assert_eq!(stats.to_bytes().len(), data.len());
    }
});
